"""Processes of a service: started in order, started again, ended in the reverse order, and with their supervisor."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import is_running
from tests.support.waiting import until

WAIT_S = 60.0
SUPERVISOR = """
import sys
from gepa_service.cli.service_processes import ServiceProcess, PartFailed, Supervisor
import os, pathlib
folder = pathlib.Path(sys.argv[1])
parts = [ServiceProcess(name, [sys.executable, "-c", code, name, str(folder)], dict(os.environ)) for name, code in
         zip(("first", "second"), sys.argv[2:])]
try:
    print(Supervisor(parts, lambda text: print(text, flush=True)).run(
        lambda: (folder / "second").exists(), lambda: print("ready", flush=True)), flush=True)
except PartFailed as error:
    sys.exit(str(error))
"""
STAYS = """
import os, pathlib, signal, sys
name, folder = sys.argv[1:]
def end(*_):
    with open(f"{folder}/ends", "a") as file: print(name, file=file)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path(folder, name + ".draft").write_text(str(os.getpid()))
os.replace(f"{folder}/{name}.draft", f"{folder}/{name}")
while True: signal.pause()
"""
IGNORES_SIGTERM = STAYS.replace("signal.signal(signal.SIGTERM, end)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
FAILS = "import sys; sys.exit(7)"


def started(folder: Path, first: str, second: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(folder), first, second],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def pid_of(folder: Path, name: str) -> int:
    return int((folder / name).read_text())


def test_sigterm_ends_the_last_part_first(tmp_path: Path) -> None:
    with started(tmp_path, STAYS, STAYS) as process:
        assert line(process) == "ready"
        until((tmp_path / "first").exists)
        process.terminate()
        assert line(process) == str(int(signal.SIGTERM))
        assert process.wait(WAIT_S) == 0
    assert (tmp_path / "ends").read_text().split() == ["second", "first"]


def test_a_part_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with started(tmp_path, STAYS, STAYS) as process:
        assert line(process) == "ready"
        until((tmp_path / "first").exists)
        before = pid_of(tmp_path, "first")
        os.kill(before, signal.SIGKILL)
        assert line(process) == "the first ended with status -9; it is started again"
        until(lambda: pid_of(tmp_path, "first") != before)
        process.terminate()
        assert process.wait(WAIT_S) == 0


def test_a_part_that_fails_at_its_start_ends_all(tmp_path: Path) -> None:
    with started(tmp_path, STAYS, FAILS) as process:
        _, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors.strip()) == (1, "the second ended with status 7")
    assert not (tmp_path / "first").exists() or not is_running(pid_of(tmp_path, "first"))


def test_a_second_signal_kills_what_does_not_end(tmp_path: Path) -> None:
    with started(tmp_path, STAYS, IGNORES_SIGTERM) as process:
        assert line(process) == "ready"
        until((tmp_path / "first").exists)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # two signals of one kind at once are one
        process.send_signal(signal.SIGINT)
        assert line(process) == "the second was killed"
        assert process.wait(WAIT_S) == 0
    assert not is_running(pid_of(tmp_path, "second"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no parent-death signal")
def test_parts_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with started(tmp_path, STAYS, STAYS) as process:
        assert line(process) == "ready"
        until((tmp_path / "first").exists)
        pids = [pid_of(tmp_path, name) for name in ("first", "second")]
        process.kill()
        until(lambda: not any(map(is_running, pids)))
