"""Run a command under its reaper: input in, output out, bounded in time and size, all of its processes ended."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common import process_reaper
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import Jail
from rpc_server.program.child_process import ChildProcess, Pipes, SpawnedChild
from rpc_server.program.stdio import LOG_TAIL_BYTES

MAX_OUTPUT_BYTES = 64 * 2**20
"""Bytes of stdout and stderr together, after which the command is ended."""

_REAPER = process_reaper.__file__
_GRACE_S = 10.0
"""Seconds in which the reaper must end everything."""


@dataclass(frozen=True)
class CommandOutcome:
    """How it ended: the command's exit status (128 + signal if that killed it), and why we ended it."""

    status: int
    out_of_time: bool = False
    too_much_output: bool = False


async def run_supervised(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    stdin: bytes,
    timeout_s: float,
    on_output: Callable[[bytes], None],
    on_log: Callable[[bytes], None],
    jail: Jail | None,
) -> CommandOutcome:
    """Run a command to its end with this stdin, in a jail if one is given.

    `on_output` receives stdout in pieces, `on_log` stderr. All of the command's processes have ended when this returns,
    raises or is cancelled.

    Raises:
        OSError: no process can be started; an unknown command has status 127, with a message on stderr.
    """
    if jail is not None:
        command = jail.wrap(command, folder=folder, environment=environment)
    arguments = (sys.executable, "-I", "-S", _REAPER, f"--owner={os.getpid()}", "--temporary", "--", *command)
    left = MAX_OUTPUT_BYTES

    def bounded(take: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def take_next(data: bytes) -> None:
            nonlocal left
            if left < 0:
                return
            left -= len(data)
            if left < 0:
                reaper.terminate()
            else:
                take(data)

        return take_next

    pipes = Pipes()
    reaper = SpawnedChild(arguments, pipes, cwd=folder, env=environment)
    process = ChildProcess(
        reaper.kill, pipes, on_output=bounded(on_output), on_log=bounded(on_log), on_end=lambda _: None
    )
    reaper.watch(process.ended)
    process.write(stdin)
    process.end_input()
    try:
        ended, _ = await asyncio.wait({process.exited}, timeout=timeout_s)
    finally:
        if not process.exited.done():
            reaper.terminate()
            await await_shielded(process.end(grace_s=_GRACE_S))
    status = process.exited.result().status if process.exited.done() else None
    if status is None:  # the system cannot end it
        status = -signal.SIGKILL
    # The reaper's status is the command's, unless the reaper itself was killed.
    status = status if status >= 0 else 128 - status
    return CommandOutcome(status, out_of_time=not ended, too_much_output=left < 0)


async def run_command(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    stage: str,
    jail: Jail | None,
) -> str:
    """Run a command to its end, in a jail if one is given, and return its output's tail.

    Raises:
        ProgramFailed: it cannot be started, its status is not 0, it takes longer, or writes too much; with `stage` and
            `log_tail`.
    """
    log = OutputTail(LOG_TAIL_BYTES)
    name = Path(command[0]).name
    try:
        outcome = await run_supervised(
            command,
            folder=folder,
            environment=environment,
            stdin=b"",
            timeout_s=timeout_s,
            on_output=log.add,
            on_log=log.add,
            jail=jail,
        )
    except OSError as error:
        raise ProgramFailed(f"cannot run {name!r}: {error.strerror}", stage=stage, log_tail="") from None
    if outcome.out_of_time:
        raise ProgramFailed(f"{name!r} ran longer than {timeout_s:g} s", stage=stage, log_tail=log.text())
    if outcome.too_much_output:
        message = f"{name!r} wrote more than {MAX_OUTPUT_BYTES} bytes of output"
        raise ProgramFailed(message, stage=stage, log_tail=log.text())
    if outcome.status != 0:
        raise ProgramFailed(f"{name!r} exited with status {outcome.status}", stage=stage, log_tail=log.text())
    return log.text()
