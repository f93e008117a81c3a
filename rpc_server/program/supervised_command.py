"""Run a command under its reaper: input in, lines out, bounded in time and memory, all of its processes ended."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from evolverpc_common import process_reaper
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import Jail
from rpc_server.program.stdio import LOG_TAIL_BYTES

MAX_LINE_BYTES = 64 * 1024
"""Bytes kept of one line on stdout; the rest of the line is dropped."""

MAX_OUTPUT_BYTES = 64 * 2**20
"""Bytes of stdout and stderr together, after which the command is ended."""

_REAPER = process_reaper.__file__
_GRACE_S = 10.0
"""Seconds in which the reaper must end everything."""
_FORCED_S = 2.0
"""Seconds to wait for the exit of a killed reaper, and for its pipes."""


@dataclass(frozen=True)
class CommandOutcome:
    """How it ended: the command's exit status (128 + signal if that killed it), and why we ended it."""

    status: int
    seconds: float
    out_of_time: bool = False
    too_much_output: bool = False


async def run_supervised(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    stdin: bytes,
    timeout_s: float,
    on_lines: Callable[[list[bytes]], None],
    on_log: Callable[[bytes], None],
    jail: Jail | None,
) -> CommandOutcome:
    """Run a command to its end with this stdin, in a jail if one is given.

    `on_lines` receives lines of stdout without newlines, those that arrive together at once; `on_log` receives stderr
    in pieces. All of the command's processes have ended when this returns, raises or is cancelled.

    Raises:
        OSError: no process can be started; an unknown command has status 127, with a message on stderr.
    """
    started = time.monotonic()
    if jail is not None:
        command = jail.wrap(command, folder=folder, environment=environment)
    arguments = (sys.executable, "-I", "-S", _REAPER, f"--owner={os.getpid()}", "--temporary", "--", *command)
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            lambda: _ReaperProtocol(on_lines, on_log),
            *arguments,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
    )
    try:
        _, reaper = await asyncio.shield(starting)
    except asyncio.CancelledError:
        await await_shielded(_end_started(starting))
        raise
    out_of_time = False
    try:
        reaper.send(stdin)
        async with asyncio.timeout(timeout_s):
            await reaper.exited.wait()
    except TimeoutError:
        out_of_time = True
    finally:
        await await_shielded(reaper.end())
    return CommandOutcome(reaper.status, time.monotonic() - started, out_of_time, reaper.too_much_output)


class _ReaperProtocol(asyncio.SubprocessProtocol):
    """The server's side of the reaper process."""

    def __init__(self, on_lines: Callable[[list[bytes]], None], on_log: Callable[[bytes], None]) -> None:
        self._lines = _LineBuffer(on_lines)
        self._on_log = on_log
        self._left = MAX_OUTPUT_BYTES
        self._closed = asyncio.Event()
        self.exited = asyncio.Event()
        self.too_much_output = False

    @property
    def status(self) -> int:
        """Its exit status, which is the command's; 128 + signal if the reaper itself was killed."""
        status = self._transport.get_returncode()
        if status is None:  # the system cannot end it
            return 128 + signal.SIGKILL
        return status if status >= 0 else 128 - status

    def send(self, stdin: bytes) -> None:
        """Write all of its input, which it need not read; nothing if it has ended already."""
        pipe = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        if not pipe.is_closing():  # uvloop refuses to write to a closed pipe
            pipe.write(stdin)
            pipe.close()

    async def end(self) -> None:
        """Let the reaper end everything, and read the rest of the pipes. Takes some seconds at most."""
        if not self.exited.is_set():
            self._terminate()
            if not await _within(_GRACE_S, self.exited):
                with contextlib.suppress(ProcessLookupError):  # it ended just now
                    os.killpg(self._transport.get_pid(), signal.SIGKILL)
                await _within(_FORCED_S, self.exited)
        await _within(_FORCED_S, self._closed)
        self._transport.close()

    def _terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # its end is about to be noticed
            self._transport.terminate()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.too_much_output:
            return
        self._left -= len(data)
        if self._left < 0:
            self.too_much_output = True
            self._terminate()
        elif fd == 1:
            self._lines.add(data)
        else:
            self._on_log(data)

    def pipe_connection_lost(self, fd: int, _exc: Exception | None) -> None:
        if fd == 1:
            self._lines.end()

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._closed.set()


class _LineBuffer:
    """Assembles lines."""

    def __init__(self, on_lines: Callable[[list[bytes]], None]) -> None:
        self._on_lines = on_lines
        self._begun = bytearray()

    def add(self, data: bytes) -> None:
        *ended, rest = data.split(b"\n")
        if ended:
            self._begin(ended[0])
            ended[0] = bytes(self._begun)
            self._begun.clear()
            self._on_lines(ended)
        self._begin(rest)

    def end(self) -> None:
        if self._begun:
            self._on_lines([bytes(self._begun)])
            self._begun.clear()

    def _begin(self, part: bytes) -> None:
        self._begun += part[: MAX_LINE_BYTES - len(self._begun)]


async def _end_started(starting: asyncio.Future[tuple[asyncio.SubprocessTransport, _ReaperProtocol]]) -> None:
    await asyncio.wait([starting])
    if starting.exception() is None:
        await starting.result()[1].end()


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for the event; report whether it happened in time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def run_command(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    stage: str,
    jail: Jail | None,
) -> None:
    """Run a command to its end, in a jail if one is given, and keep its output's tail.

    Raises:
        ProgramFailed: it cannot be started, its status is not 0, it takes longer, or writes too much; with `stage` and
            `log_tail`.
    """
    log = OutputTail(LOG_TAIL_BYTES)

    def on_lines(lines: list[bytes]) -> None:
        log.add(b"\n".join(lines) + b"\n")

    name = Path(command[0]).name
    try:
        outcome = await run_supervised(
            command,
            folder=folder,
            environment=environment,
            stdin=b"",
            timeout_s=timeout_s,
            on_lines=on_lines,
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
