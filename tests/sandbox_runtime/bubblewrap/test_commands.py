import os
from pathlib import Path

from tests.sandbox_runtime.backend import BackendUnderTest
from tests.sandbox_runtime.suite.acting import shell_output


async def test_a_command_cannot_write_to_its_input(backend: BackendUnderTest, tmp_path: Path) -> None:
    sandbox = await backend.started()
    file = tmp_path / "input"
    file.write_bytes(b"given")
    file.chmod(0o666)
    for stdin in (file, b"given"):
        await sandbox.exec(backend.shell("echo spoilt > /proc/self/fd/0", stdin=stdin))
    assert file.read_bytes() == b"given"


async def test_no_descriptor_of_the_host_reaches_a_command(backend: BackendUnderTest) -> None:
    held = os.open("/", os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        sandbox = await backend.started()
        assert (await shell_output(sandbox, "ls /proc/self/fd")).split() == list("0123")  # the last is that of ls
    finally:
        os.close(held)
