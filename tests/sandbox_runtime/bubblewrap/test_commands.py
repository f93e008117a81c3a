import os
from pathlib import Path

from sandbox_runtime.runtime import Runtime
from tests.sandbox_runtime.bubblewrap.containers import shell, shell_output, started


async def test_a_command_cannot_write_to_its_input(runtime: Runtime, tmp_path: Path) -> None:
    sandbox = await started(runtime)
    file = tmp_path / "input"
    file.write_bytes(b"given")
    file.chmod(0o666)
    for stdin in (file, b"given"):
        await sandbox.exec(shell("echo spoilt > /proc/self/fd/0", stdin=stdin))
    assert file.read_bytes() == b"given"


async def test_no_descriptor_of_the_host_reaches_a_command(runtime: Runtime) -> None:
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
