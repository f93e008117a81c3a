"""Commands without a server whose streams are descriptors of this process."""

import asyncio
import os

import pytest

from evolverpc_common.output_tail import OutputTail
from sandbox_runtime import Closed, Command, PreparedEnvironment, Recipe, SandboxGone, SandboxSpec
from sandbox_runtime.backends.image_setup import SERVER_PYTHON
from sandbox_runtime.backends.modal.backend import ModalBackend
from tests.support.modal_cloud import Cloud

ECHO = (
    "import sys; text = sys.stdin.read(); print(text.upper(), end=''); print('received', file=sys.stderr); sys.exit(7)"
)
LARGE = "x" * (1 << 19)


async def spec(backend: ModalBackend, cloud: Cloud) -> SandboxSpec:
    cloud.control.has_every_image = True
    prepared = await backend.packages_image(("protocol",), ("client",), on_progress=lambda _: None)
    assert prepared == PreparedEnvironment(recipe=Recipe(), server=(), python=SERVER_PYTHON, image=prepared.image)
    return SandboxSpec(main=Command(("never-started",)), prepared=prepared, egress=Closed())


async def test_a_command_reads_and_writes_the_descriptors_to_their_ends(backend: ModalBackend, cloud: Cloud) -> None:
    sandbox = await backend.begin(await spec(backend, cloud), OutputTail(0))
    (read_in, write_in), (read_out, write_out), (read_err, write_err) = os.pipe(), os.pipe(), os.pipe()
    command = Command((SERVER_PYTHON, "-I", "-S", "-c", ECHO))
    ending = await sandbox.begin(command, [read_in, write_out, write_err])
    for descriptor in (read_in, write_out, write_err):
        os.close(descriptor)  # they were duplicated

    def write() -> None:
        with os.fdopen(write_in, "wb") as stdin:
            stdin.write(LARGE.encode())

    def read(descriptor: int) -> str:
        with os.fdopen(descriptor) as stream:
            return stream.read()

    _, out, err = await asyncio.gather(
        asyncio.to_thread(write), asyncio.to_thread(read, read_out), asyncio.to_thread(read, read_err)
    )
    assert (out == LARGE.upper(), err) == (True, "received\n")
    assert await asyncio.wait_for(ending, 30) == 7
    await backend.stop(sandbox.id)


async def test_a_command_of_a_sandbox_that_ends_has_no_status(backend: ModalBackend, cloud: Cloud) -> None:
    sandbox = await backend.begin(await spec(backend, cloud), OutputTail(0))
    with open(os.devnull, "r+b") as nothing:  # noqa: ASYNC230, PTH123  it blocks on nothing
        ending = await sandbox.begin(Command(("sleep", "600")), [nothing.fileno()] * 3)
    await backend.stop(sandbox.id)
    with pytest.raises(SandboxGone):
        await asyncio.wait_for(ending, 30)
