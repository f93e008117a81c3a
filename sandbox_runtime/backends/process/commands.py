"""Run commands as plain processes: read all output, and end everything that a command started."""

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from evolverpc_common.process_identity import started_at
from evolverpc_common.shielded import all_of
from evolverpc_common.tail import Tail
from sandbox_runtime.api.sandbox import EXEC_BYTES, EnvironmentMissing
from sandbox_runtime.backends.process.marked_processes import MARK, REAPER, end_all, terminate_and_wait

_PIECE_BYTES = 256 * 1024
_DRAIN_S = 2.0
"""How long the end of its pipes is waited for when all of it has ended: somebody else may hold them."""


@dataclass(frozen=True)
class Bounds:
    """Of each process by itself, in bytes: its private writable memory, and the size of a file it writes; -1: none."""

    memory: int = -1
    file: int = -1


class RunningCommand:
    """A command that was started, by a `launch` of its own. `stderr` None: what it writes there goes to `stdout`."""

    def __init__(self, mark: str, process: "subprocess.Popen[bytes]") -> None:
        self._mark = mark
        self._process = process
        self._status: int | None = None
        self._pidfd = os.pidfd_open(process.pid)
        self._started = started_at(process.pid) or 0  # 0 where it has ended already
        self._pipes: list[_Pipe] = []
        self._left: set[int] | None = None
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        mark: str,
        folder: Path,
        env: Mapping[str, str],
        bounds: Bounds,
        stdout: Tail,
        stderr: Tail | None = None,
        stdin: bytes | Path = b"",
        listening: int = -1,
        outlives: bool = False,
    ) -> Self:
        """Start it; one that cannot be run ends with status 126 or 127. To be ended in any case.

        `outlives`: it goes on when this process is killed, until it is swept; all else ends soon after.

        Raises:
            OSError: no process can be started, or `stdin` cannot be read.
        """
        with _opened(stdin) as source:
            process = subprocess.Popen(  # noqa: S603  a millisecond; the caller chooses the command
                (
                    *(sys.executable, "-I", "-S", REAPER, f"--folder={folder}"),
                    *(() if outlives else (f"--owner={os.getpid()}",)),
                    *(() if bounds.memory < 0 else (f"--memory={bounds.memory}",)),
                    *(() if bounds.file < 0 else (f"--file-size={bounds.file}",)),
                    *(() if listening < 0 else (f"--listening={listening}",)),
                    *("--", *argv),
                ),
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if stderr is None else subprocess.PIPE,
                env={**env, MARK: mark},
                pass_fds=() if listening < 0 else (listening,),
                start_new_session=True,
            )
        try:
            running = cls(mark, process)
        except OSError:  # no descriptor is free
            with process:
                process.kill()
            raise
        running._attend(stdout, stderr)
        return running

    @property
    def pid(self) -> int:
        """Of the process that `launch` is, which ends with all of it."""
        return self._process.pid

    @property
    def command(self) -> int:
        """The pid of the command itself, while it runs; it leads a session of its own."""
        below = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        try:
            return int(below.read_text().split()[0])  # orphans, which it is given later, come after it
        except (OSError, IndexError):
            return self.pid

    @property
    def status(self) -> int | None:
        """After `end`: its exit status, 128 + signal where that killed it; None where nothing could end it."""
        return self._status

    async def finished(self, within_s: float | None = None) -> bool:
        """Whether it ended by itself within that time."""
        await asyncio.wait([self.exited], timeout=within_s)
        return self.exited.done()

    async def end(self) -> set[int]:
        """End what is left of all that it started, and read what is left of what that wrote; the pids that remain."""
        if self._left is not None:
            return self._left
        left = self._left = await asyncio.to_thread(self._end_all)
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        if not self.exited.done():
            self.exited.set_result(None)
        if self._pipes:
            await asyncio.wait([pipe.ended for pipe in self._pipes], timeout=_DRAIN_S)
        for pipe in self._pipes:
            pipe.close()
        return left

    def _end_all(self) -> set[int]:
        terminate_and_wait([self._pidfd])
        left = end_all(self._mark, lambda: self.pid, since=self._started)
        if self.pid not in left:
            status = self._process.wait()  # it has ended, or it would have been found as the leader
            self._status = status if status >= 0 else 128 - status
        return left

    def _attend(self, stdout: Tail, stderr: Tail | None) -> None:
        asyncio.get_running_loop().add_reader(self._pidfd, self._has_exited)
        for stream, tail in ((self._process.stdout, stdout), (self._process.stderr, stderr)):
            if stream is not None and tail is not None:
                self._pipes.append(_Pipe(stream, tail))

    def _has_exited(self) -> None:
        """It is waited for in `end`: until then its pid, and with it its session, cannot be another's."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        if not self.exited.done():
            self.exited.set_result(None)


class _Pipe:
    """Reads one stream to its end.

    Not by `connect_read_pipe`: uvloop's closes its descriptor twice, which by then may be another thread's.
    """

    def __init__(self, stream: IO[bytes], tail: Tail) -> None:
        self._stream = stream
        self._tail = tail
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(stream.fileno(), False)
        self._loop.add_reader(stream.fileno(), self._read)

    def close(self) -> None:
        """Nothing more is read."""
        if not self.ended.done():
            self._loop.remove_reader(self._stream.fileno())
            self._stream.close()
            self.ended.set_result(None)

    def _read(self) -> None:
        try:
            data = os.read(self._stream.fileno(), _PIECE_BYTES)
        except BlockingIOError:
            return  # woken for nothing
        if data:
            self._tail.add(data)
        else:
            self.close()


def _opened(stdin: bytes | Path) -> IO[bytes]:
    """All of the input as a file: nobody has to feed it, and nobody waits for one that does not read."""
    if isinstance(stdin, Path):
        return stdin.open("rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115  closed by whoever called
    file.write(stdin)
    file.seek(0)
    return file


async def run_build(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    readable: Sequence[str],  # noqa: ARG001  all of this machine is
) -> tuple[int, bytes]:
    """One command, as `environments.Run` says. Raises `TimeoutError`, `EnvironmentMissing`."""
    output = Tail(EXEC_BYTES)
    mark = f"build-{secrets.token_hex(6)}"
    try:
        running = RunningCommand.start(argv, mark=mark, folder=cwd, env=env, bounds=Bounds(), stdout=output)
    except OSError as error:
        raise EnvironmentMissing(f"{argv[0]!r} cannot be run: {error}") from error
    try:
        in_time = await running.finished(timeout_s)
    finally:
        await all_of(running.end())
    if not in_time or running.status is None:
        raise TimeoutError(f"{argv[0]!r} ran longer than {timeout_s:g} s")
    return running.status, output.bytes()
