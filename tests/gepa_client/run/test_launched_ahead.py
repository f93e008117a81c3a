"""A driver process that is launched before its run is known to start."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gepa_client.journal.run_events import Finished
from gepa_client.run import supervisor
from gepa_client.run.control_messages import DriverJob
from gepa_client.run.supervisor import DriverProcess, LaunchDriver, launched_ahead
from gepa_client.settings.run_config import RunConfig
from tests.support.forked_client import ForkServer

CONFIG = {"url": ["http://127.0.0.1:1"], "trainset": "rows.jsonl", "reflection_lm": "openai/gpt-5"}
WITH_MODEL = RunConfig(**CONFIG)


@pytest.fixture(autouse=True)
def _forks(monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer) -> None:
    monkeypatch.setattr(supervisor, "subprocess", fork_server.forking_subprocess())


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that are launched, in order."""
    found: list[subprocess.Popen[bytes]] = []
    launch = supervisor.launch_here

    def kept(*arguments: Any) -> Any:
        found.append(launch(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(supervisor, "launch_here", kept)
    yield found
    assert all(process.poll() is not None for process in found)


def ended(folder: Path, launch: LaunchDriver, config: dict[str, Any] = CONFIG) -> Finished:
    """Return the last event of a run that does not exist."""
    job = DriverJob(store=str(folder / "store.db"), run_id="none", owner="first", config=config, output=None)
    with DriverProcess(job, folder / "log.txt", launch=launch) as process:
        while True:
            event = process.next(60.0)
            if isinstance(event, Finished):
                return event


def test_it_does_the_job_that_it_is_given(tmp_path, launched):
    with launched_ahead(WITH_MODEL) as launch:
        assert "holds no run none" in str(ended(tmp_path, launch).reason)
    assert len(launched) == 1


def test_what_it_prints_is_in_its_log(tmp_path, launched):
    with launched_ahead(WITH_MODEL) as launch, pytest.raises(EOFError):
        ended(tmp_path, launch, {})
    assert "`url`, `fleet`, `repo`: none is given" in (tmp_path / "log.txt").read_text()


def test_one_that_is_not_used_ends(launched):
    with launched_ahead(WITH_MODEL):
        assert launched[0].poll() is None


def test_another_takes_the_place_of_one_that_has_died(tmp_path, launched):
    with launched_ahead(WITH_MODEL) as launch:
        os.kill(launched[0].pid, signal.SIGKILL)
        launched[0].wait(10.0)
        assert "holds no run none" in str(ended(tmp_path, launch).reason)
    assert len(launched) == 2
