"""A command that runs in a worktree: its errors are kept, and its output is bounded."""

import asyncio
import os
import time
from pathlib import Path

import pytest
import uvloop

from protocol.errors import ProgramFailed
from rpc_server.program import supervised_command
from rpc_server.program.supervised_command import CommandOutcome, run_command, run_supervised


async def failure_of(folder: Path, *command: str) -> ProgramFailed:
    with pytest.raises(ProgramFailed) as failed:
        await run_command(
            command, folder=folder, environment=dict(os.environ), timeout_s=30.0, stage="build", jail=None
        )
    assert failed.value.details["stage"] == "build"
    return failed.value


async def test_a_status_is_reported_with_the_output(tmp_path: Path) -> None:
    failed = await failure_of(tmp_path, "sh", "-c", "echo built half; exit 3")
    assert failed.message == "'sh' exited with status 3"
    assert failed.details["log_tail"] == "built half\n"


async def test_endless_output_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_command, "MAX_OUTPUT_BYTES", 2**20)
    failed = await failure_of(tmp_path, "yes")
    assert failed.message == "'yes' wrote more than 1048576 bytes of output"


def test_a_command_that_ended_before_its_input_was_written_has_its_status(tmp_path: Path) -> None:
    async def block_the_loop() -> None:
        while True:
            time.sleep(0.25)  # noqa: ASYNC251  the command ends meanwhile
            await asyncio.sleep(0)

    async def outcome() -> CommandOutcome:
        blocking = asyncio.ensure_future(block_the_loop())
        try:
            return await run_supervised(
                ("nonesuch",),
                folder=tmp_path,
                environment=dict(os.environ),
                stdin=b"input",
                timeout_s=30.0,
                on_lines=lambda _: None,
                on_log=lambda _: None,
                jail=None,
            )
        finally:
            blocking.cancel()

    assert uvloop.run(outcome()).status == 127
