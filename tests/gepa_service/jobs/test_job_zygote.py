"""Job processes are forked from a zygote that knows nothing of any job."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gepa_service.jobs import job_zygote as zygotes
from gepa_service.jobs.job_starter import JobProcess
from gepa_service.jobs.job_zygote import JobZygote
from tests.gepa_service.jobs import probe

WAIT_S = 60.0
MASTER_KEY = "GEPA_SERVICE_MASTER_KEY"


@pytest.fixture
def zygote(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobZygote]:
    """A zygote of a worker that has the master key in its environment, and whose forks are probes."""
    monkeypatch.setenv(MASTER_KEY, "the master key")
    monkeypatch.setattr(zygotes, "MODULES", (*zygotes.MODULES, probe.__name__))
    with closing(JobZygote()) as opened:
        yield opened


def begun(zygote: JobZygote, folder: Path, **environment: str) -> tuple[JobProcess, dict[str, Any]]:
    """A process, and what it printed."""
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("ab") as log:
        process = zygote.start({"PATH": os.defpath, **environment}, folder, log)
    assert process.stdout is not None
    timer = threading.Timer(WAIT_S, process.send_signal, [signal.SIGKILL])
    timer.start()
    try:
        line = process.stdout.readline()
    finally:
        timer.cancel()
    assert line, (folder / "log").read_text()
    found: dict[str, Any] = json.loads(line)
    return process, found


def end(process: JobProcess) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait(WAIT_S)
    process.stdout.close()


def test_a_job_process_has_its_own_environment_and_folder_and_nothing_of_another_job(
    zygote: JobZygote, tmp_path: Path
) -> None:
    first, of_first = begun(zygote, tmp_path / "first", HOME="/first")
    second, of_second = begun(zygote, tmp_path / "second", HOME="/second")
    for name, found in (("first", of_first), ("second", of_second)):
        assert found["environment"] == {"PATH": os.defpath, "HOME": f"/{name}"}
        assert MASTER_KEY not in found["initial environment"]
        assert found["folder"] == str(tmp_path / name)
        assert found["session"]
    other = str(tmp_path / "first")
    assert not any(each.startswith(other) for each in of_second["descriptors"])
    shared = {each for each in of_first["descriptors"] if each.startswith(("pipe:", "socket:", "/memfd:"))}
    assert not [each for each in of_second["descriptors"] if each.startswith(("pipe:", "socket:")) and each in shared]
    for process in (first, second):
        end(process)


def test_a_process_ends_by_a_signal_and_is_not_waited_for_in_vain(zygote: JobZygote, tmp_path: Path) -> None:
    process, found = begun(zygote, tmp_path / "job")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(WAIT_S)
    assert process.poll() is not None
    process.send_signal(signal.SIGTERM)  # another process may have its number by now
    end(process)
    assert not Path(f"/proc/{found['pid']}/fd/0").exists()
