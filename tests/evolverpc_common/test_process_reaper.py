"""Nothing that the command of a reaper started outlives it; its limits, descriptors and folder reach the command."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evolverpc_common import process_reaper
from tests.support.processes import is_running
from tests.support.waiting import until

REAPER = (sys.executable, "-I", "-S", process_reaper.__file__)
ESCAPES = "import os, time\nos.fork() and os._exit(0)\nos.setsid()\nos.fork() and os._exit(0)\n"


def reaped(*arguments: str, **given: object) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([*REAPER, *arguments], capture_output=True, timeout=30, check=False, **given)  # type: ignore[call-overload,no-any-return]


def wait_for(path: Path) -> int:
    return int(until(lambda: path.exists() and path.read_text().strip()))


def test_a_descendant_in_another_session_does_not_outlive_the_command(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"{ESCAPES}open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    done = reaped("--", "sh", "-c", f'{sys.executable} -c "$0" & while ! test -s {pid}; do :; done', code)
    assert done.returncode == 0
    assert not is_running(wait_for(pid))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_everything(tmp_path: Path, number: signal.Signals) -> None:
    pid = tmp_path / "pid"
    reaper = subprocess.Popen([*REAPER, "--", "sh", "-c", f"echo $$ > {pid}; trap '' TERM; sleep 600"])
    command = wait_for(pid)
    reaper.send_signal(number)
    assert reaper.wait(20) == 128 + number
    assert not is_running(command)


def test_the_end_of_the_owner_ends_everything(tmp_path: Path) -> None:
    pid, temporary = tmp_path / "pid", tmp_path / "temporary"
    temporary.mkdir()
    code = (
        "import os, subprocess, sys\n"
        f"flags = ['--temporary', f'--owner={{os.getpid()}}', '--']\n"
        f"subprocess.Popen([*{REAPER!r}, *flags, 'sh', '-c', 'touch $TMPDIR/left; echo $$ > {pid}; sleep 600'])\n"
        "sys.stdin.read()"
    )
    environment = {**os.environ, "TMPDIR": str(temporary)}
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env=environment)
    command = wait_for(pid)
    owner.kill()
    owner.communicate()
    until(lambda: not is_running(command))
    until(lambda: not list(temporary.iterdir()))


def test_limits_and_descriptors_reach_the_command(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"through 3")
    os.close(writing)
    done = reaped(
        *(f"--folder={tmp_path}", "--memory=300000000", "--file-size=4096", f"--listening={reading}", "--"),
        *("sh", "-c", "ulimit -d; ulimit -f; pwd; cat <&3"),
        pass_fds=[reading],
    )
    os.close(reading)
    assert done.stdout.decode().split("\n") == ["292968", "8", str(tmp_path), "through 3"]
