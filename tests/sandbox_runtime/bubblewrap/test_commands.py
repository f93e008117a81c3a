import asyncio
import os
import time
from pathlib import Path

import pytest

from sandbox_runtime import Command
from sandbox_runtime.api.sandbox import EXEC_BYTES, LOG_BYTES
from sandbox_runtime.backends.bubblewrap.runtime import BubblewrapRuntime
from tests.sandbox_runtime.bubblewrap.containers import ANSWERING, python, result, shell, shell_output, started, until


async def test_a_command_has_its_input_its_folder_and_its_status(runtime: BubblewrapRuntime, tmp_path: Path) -> None:
    sandbox = await started(runtime)
    await shell_output(sandbox, "mkdir inner")
    done = await sandbox.exec(shell("cat; pwd >&2; exit 5", cwd="inner", stdin=b"x" * 300_000))
    assert (done.status, done.stdout, done.stderr) == (5, b"x" * 300_000, b"/workspace/inner\n")
    file = tmp_path / "input"
    file.write_bytes(b"from a file")
    assert (await sandbox.exec(Command(("cat",), stdin=file))).stdout == b"from a file"
    file.write_bytes(b"y" * 3_000_000)
    assert (await sandbox.exec(Command(("wc", "-c"), stdin=file))).stdout == b"3000000\n"
    assert (await sandbox.exec(Command(("true",), stdin=file))).status == 0
    assert (await result(sandbox, "kill -TERM $$")).status == 128 + 15
    assert (await sandbox.exec(Command(("no-such-program",)))).status == 127


async def test_a_command_cannot_write_to_its_input(runtime: BubblewrapRuntime, tmp_path: Path) -> None:
    sandbox = await started(runtime)
    file = tmp_path / "input"
    file.write_bytes(b"given")
    file.chmod(0o666)
    for stdin in (file, b"given"):
        await sandbox.exec(shell("echo spoilt > /proc/self/fd/0", stdin=stdin))
    assert file.read_bytes() == b"given"


async def test_a_command_gets_exactly_the_given_variables(
    runtime: BubblewrapRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "1")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    sandbox = await started(runtime, env={"PLAIN": "p"}, secrets={"HIDDEN": "h"})
    done = await sandbox.exec(Command(("env",), env={"OWN": "o"}))
    got = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"):
        got.pop(name, None)  # there are machines without
    assert got == {
        "PATH": "/workspace/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/workspace/home",
        "TMPDIR": "/workspace/tmp",
        "USER": "gepa",
        "LOGNAME": "gepa",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "PLAIN": "p",
        "HIDDEN": "h",
        "OWN": "o",
    }


async def test_at_its_deadline_a_command_is_ended_with_its_descendants(runtime: BubblewrapRuntime) -> None:
    sandbox = await started(runtime)
    began = time.monotonic()
    script = "setsid sh -c 'while :; do echo . >> beats; sleep 0.02; done' & trap '' TERM; echo begun; sleep 60"
    done = await result(sandbox, script, timeout_s=0.5)
    assert done.timed_out
    assert done.stdout == b"begun\n"
    assert time.monotonic() - began < 5
    beats = await shell_output(sandbox, "wc -l < beats")
    assert beats == await shell_output(sandbox, "sleep 0.1; wc -l < beats")


async def test_processes_that_a_command_leaves_running_end_with_it(runtime: BubblewrapRuntime) -> None:
    sandbox = await started(runtime)
    await shell_output(
        sandbox, "setsid sh -c 'while :; do echo . >> beats; sleep 0.02; done' >/dev/null 2>&1 & sleep 0.1"
    )
    beats = await shell_output(sandbox, "wc -l < beats")
    assert beats == await shell_output(sandbox, "sleep 0.1; wc -l < beats")


async def test_a_cancelled_command_is_ended(runtime: BubblewrapRuntime) -> None:
    sandbox = await started(runtime)
    running = asyncio.create_task(result(sandbox, "while :; do echo . >> beats; sleep 0.02; done"))
    await shell_output(sandbox, "until test -e beats; do sleep 0.02; done")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    beats = await shell_output(sandbox, "wc -l < beats")
    assert beats == await shell_output(sandbox, "sleep 0.1; wc -l < beats")


async def test_commands_run_beside_each_other(runtime: BubblewrapRuntime) -> None:
    sandbox = await started(runtime)
    began = time.monotonic()
    done = await asyncio.gather(*(result(sandbox, f"sleep 0.5; echo {number}") for number in range(10)))
    assert [one.stdout.decode().strip() for one in done] == [str(number) for number in range(10)]
    assert time.monotonic() - began < 4


async def test_kept_output_and_logs_are_bounded(runtime: BubblewrapRuntime) -> None:
    loud = 'import sys; sys.stdout.write("a" * 1_000_000); sys.stdout.write("end\\n"); sys.stdout.flush()\n'
    sandbox = await started(runtime, main=python(loud + ANSWERING))
    log = await sandbox.logs()
    assert log.endswith("end\nlistening\n")
    assert len(log) <= LOG_BYTES
    done = await result(sandbox, f"head -c {EXEC_BYTES + 1000} /dev/zero; echo end")
    assert len(done.stdout) == EXEC_BYTES
    assert done.stdout.endswith(b"\0end\n")


async def test_no_descriptor_of_the_host_reaches_a_command(runtime: BubblewrapRuntime) -> None:
    held = os.open("/", os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        sandbox = await started(runtime)
        assert (await shell_output(sandbox, "ls /proc/self/fd")).split() == [
            "0",
            "1",
            "2",
            "3",
        ]  # the last is that of ls
    finally:
        os.close(held)


async def test_only_the_server_has_the_token(runtime: BubblewrapRuntime) -> None:
    main = python('import os\nprint("token", os.environ["GEPA_TOKEN"], flush=True)\n' + ANSWERING)
    sandbox = await started(runtime, main=main, setup=(shell("echo setup:$GEPA_TOKEN:"),))
    token = (await sandbox.endpoint()).token
    log = await sandbox.logs()
    assert f"token {token}" in log
    assert "setup::" in log
    assert await shell_output(sandbox, "echo :$GEPA_TOKEN:") == "::"
    assert token not in await shell_output(
        sandbox, "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; true"
    )


async def test_processes_of_a_server_do_not_outlive_its_sandbox(runtime: BubblewrapRuntime) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    daemon = f'import subprocess\nsubprocess.Popen(["sh", "-c", "sleep 60; : {mark}"], start_new_session=True)\n'
    sandbox = await started(runtime, main=python(daemon + ANSWERING))
    assert _running(mark)
    await sandbox.close()
    await until(lambda: not _running(mark))


def _running(mark: str) -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"sleep 60; : {mark}".encode() in (process / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False
