"""`pytest --workers N`: the tests are imported once, and N forks of that process run them, a file at a time.

With pytest-xdist each worker imports them for itself, in seven CPU seconds. A worker takes the next file when it is
about to end its own; files with a slow test (one with a time limit of its own) come first. Reports go through pipes to
the first process, which prints them as if it had run the tests itself.
"""

import os
import pickle
import random
import selectors
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

WORKER = "PYTEST_XDIST_WORKER"
"""The variable that a worker has, by this plugin as by pytest-xdist."""

HEAD = struct.Struct("=I")
"""Before a report its length; of a file in the queue its number."""

END = ""
"""What a worker sends last: a process that a test left may hold the pipe open."""


class ForkedWorkers:
    """The plugin. `count`: how many processes run the tests."""

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests in forks, and report what they report."""
        if session.testsfailed or session.config.option.collectonly or not session.items:
            return None
        files = sorted(([*items] for _, items in groupby(session.items, key=lambda item: item.path)), key=_is_quick)
        assert threading.active_count() == 1, "a fork has the main thread only"
        queue, filled = os.pipe()
        os.write(filled, b"".join(HEAD.pack(at) for at in range(len(files))))
        os.close(filled)
        base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        workers = [_Worker(session, number, files, queue, base) for number in range(self._count)]
        os.close(queue)
        reported = False
        try:
            _report(session, workers)
            reported = True
        finally:
            for worker in workers:
                worker.end(at_once=not reported)
        return True


def _is_quick(items: list[pytest.Item]) -> bool:
    return all(item.get_closest_marker("timeout") is None for item in items)


class _Worker:
    """A fork that runs tests. `reports`: the pipe from it."""

    def __init__(
        self, session: pytest.Session, number: int, files: list[list[pytest.Item]], queue: int, base: Path
    ) -> None:
        name, self.running = f"gw{number}", "no test"
        self.reports, into = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _run(session, name, files, queue, into, base / name)
        os.close(into)

    def read(self) -> Any:
        """Return the next report as it was sent; None at the end."""
        head = self._bytes(HEAD.size)
        return pickle.loads(self._bytes(*HEAD.unpack(head))) if head else None  # noqa: S301  from our own fork

    def _bytes(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size and (part := os.read(self.reports, size - len(found))):
            found += part
        return bytes(found)

    def end(self, *, at_once: bool) -> None:
        """Wait for its end; `at_once`: after interrupting it."""
        os.close(self.reports)
        if at_once:
            os.kill(self._pid, signal.SIGINT)
        os.waitpid(self._pid, 0)


def _report(session: pytest.Session, workers: list[_Worker]) -> None:
    """Pass on the reports of the workers until all have ended."""
    hook = session.config.hook
    with selectors.DefaultSelector() as events:
        for worker in workers:
            events.register(worker.reports, selectors.EVENT_READ, worker)
        while events.get_map():
            for key, _ in events.select():
                worker = key.data
                sent = worker.read()
                if sent is None:
                    raise pytest.UsageError(f"a worker ended while it ran {worker.running}")
                if sent == END:
                    events.unregister(worker.reports)
                elif isinstance(sent, str):
                    worker.running = sent
                else:
                    report = hook.pytest_report_from_serializable(config=session.config, data=sent)
                    hook.pytest_runtest_logreport(report=report)
                    if report.when == "teardown":
                        hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
                    if session.shouldfail:
                        raise session.Failed(session.shouldfail)


def _run(
    session: pytest.Session, name: str, files: list[list[pytest.Item]], queue: int, into: int, folder: Path
) -> None:
    """Be a worker; never return."""
    status = 1
    try:
        os.environ[WORKER] = name
        random.seed()
        folder.mkdir(mode=0o700)
        config = session.config
        config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        captured = config.pluginmanager.get_plugin("capturemanager")
        assert captured is not None
        captured.stop_global_capturing()  # its files are those of the first process
        captured.start_global_capturing()
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(_Sender(config, into))
        previous = None
        for item in _taken(files, queue):
            if previous is not None:
                config.hook.pytest_runtest_protocol(item=previous, nextitem=item)
            previous = item
        if previous is not None:
            config.hook.pytest_runtest_protocol(item=previous, nextitem=None)
        os.write(into, _framed(END))
        status = 0
    except BaseException as error:  # noqa: BLE001  as the interpreter does
        if not isinstance(error, KeyboardInterrupt):
            traceback.print_exc(file=sys.__stderr__)
        with suppress(BaseException):
            session._setupstate.teardown_exact(None)
    finally:
        os._exit(status)


def _taken(files: list[list[pytest.Item]], queue: int) -> Iterator[pytest.Item]:
    """Yield the tests of the next file of all workers' queue, until it is empty."""
    while number := os.read(queue, HEAD.size):
        yield from files[HEAD.unpack(number)[0]]


class _Sender:
    """Sends what a worker reports, and before each test its name."""

    def __init__(self, config: pytest.Config, into: int) -> None:
        self._config = config
        self._into = into

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._send(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def _send(self, what: object) -> None:
        left = memoryview(_framed(what))
        while left:
            left = left[os.write(self._into, left) :]


def _framed(what: object) -> bytes:
    content = pickle.dumps(what)
    return HEAD.pack(len(content)) + content
