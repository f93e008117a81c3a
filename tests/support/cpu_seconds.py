"""The processor time of the tests: of the processes that run them and of all that these have waited for, by file."""

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support import forked_client

NAME = "cpu_s"
SHOWN = 10
"""Files that the end of the output names, those that took most."""


class CpuSeconds:
    """A plugin of pytest; each phase of a test (setup, call, teardown) takes what was spent since the one before."""

    def __init__(self) -> None:
        self._before = 0.0
        self._by_file: Counter[str] = Counter()

    def pytest_runtest_logstart(self) -> None:
        self._before = _spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = _spent()
        report.user_properties.append((NAME, now - self._before))
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._by_file[report.nodeid.partition("::")[0]] += dict(report.user_properties)[NAME]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._by_file:  # nothing ran
            return
        terminalreporter.section(f"{self._by_file.total():.0f} CPU seconds; the files that took most")
        for file, seconds in self._by_file.most_common(SHOWN):
            terminalreporter.write_line(f"{seconds:7.1f} {file}")
        if (kept := os.environ.get("CPU_SECONDS")) is not None:
            Path(kept).write_text("".join(f"{seconds:.2f} {file}\n" for file, seconds in self._by_file.most_common()))


def _spent() -> float:
    return sum(os.times()[:4]) + forked_client.forked_s
