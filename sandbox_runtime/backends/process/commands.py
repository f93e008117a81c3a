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
from evolverpc_common.shielded import await_shielded
from evolverpc_common.tail import OutputTail
from sandbox_runtime.api.sandbox import EXEC_BYTES, EnvironmentMissing
from sandbox_runtime.backends.process.marked_processes import MARK, REAPER, end_all, terminate_and_wait

_PIECE_BYTES = 256 * 1024
_DRAIN_S = 2.0
"""How long the end of a command's pipes is waited for after it has ended: another process may hold them."""


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of each process, in bytes: private writable memory, and the size of a file that it writes; -1: none."""

    memory: int = -1
    file: int = -1


class RunningCommand:
    """A started command under its own reaper. `stderr` None: it is written to `stdout`."""

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
        limits: ProcessLimits,
        stdout: OutputTail,
        stderr: OutputTail | None = None,
        stdin: bytes | Path = b"",
        listening: int = -1,
        outlives: bool = False,
    ) -> Self:
        """Start it; one that cannot run ends with status 126 or 127. Call `end` in any case.

        `outlives`: it keeps running if this process is killed, until it is swept; others end soon after.

        Raises:
            OSError: no process can be started, or `stdin` cannot be read.
        """
        with _opened(stdin) as source:
            process = subprocess.Popen(  # noqa: S603  a millisecond; the caller chooses the command
                (
                    *(sys.executable, "-I", "-S", REAPER, f"--folder={folder}"),
                    *(() if outlives else (f"--owner={os.getpid()}",)),
                    *(() if limits.memory < 0 else (f"--memory={limits.memory}",)),
                    *(() if limits.file < 0 else (f"--file-size={limits.file}",)),
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
        """The pid of its reaper, which ends after everything else."""
        return self._process.pid

    @property
    def command(self) -> int:
        """The pid of the command itself while it runs; it leads a session of its own."""
        below = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        try:
            return int(below.read_text().split()[0])  # orphans, which it is given later, come after it
        except (OSError, IndexError):
            return self.pid

    @property
    def status(self) -> int | None:
        """The exit status after `end`, 128 + signal if a signal ended it; None if it could not be ended."""
        return self._status

    async def finished(self, within_s: float | None = None) -> bool:
        """Return whether it ended by itself within that time."""
        await asyncio.wait([self.exited], timeout=within_s)
        return self.exited.done()

    async def end(self) -> set[int]:
        """End everything that it started, and read the rest of the output; return the pids that remain."""
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

    def _attend(self, stdout: OutputTail, stderr: OutputTail | None) -> None:
        asyncio.get_running_loop().add_reader(self._pidfd, self._has_exited)
        for stream, tail in ((self._process.stdout, stdout), (self._process.stderr, stderr)):
            if stream is not None and tail is not None:
                self._pipes.append(_Pipe(stream, tail))

    def _has_exited(self) -> None:
        """Report the exit. `end` waits for the process, so that its pid and session stay its own until then."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        if not self.exited.done():
            self.exited.set_result(None)


class _Pipe:
    """Reads one stream to its end.

    It avoids `connect_read_pipe`: that of uvloop closes its descriptor twice, and the second may be another thread's.
    """

    def __init__(self, stream: IO[bytes], tail: OutputTail) -> None:
        self._stream = stream
        self._tail = tail
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(stream.fileno(), False)
        self._loop.add_reader(stream.fileno(), self._read)

    def close(self) -> None:
        """Read nothing more."""
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
    """Return all of the input as a file, so that no task has to feed it."""
    if isinstance(stdin, Path):
        return stdin.open("rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115  closed by the caller
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
    """Run one command of a build, see `environments.RunBuildCommand`. Raises `TimeoutError`, `EnvironmentMissing`."""
    output = OutputTail(EXEC_BYTES)
    mark = f"build-{secrets.token_hex(6)}"
    try:
        running = RunningCommand.start(argv, mark=mark, folder=cwd, env=env, limits=ProcessLimits(), stdout=output)
    except OSError as error:
        raise EnvironmentMissing(f"{argv[0]!r} cannot be run: {error}") from error
    try:
        in_time = await running.finished(timeout_s)
    finally:
        await await_shielded(running.end())
    if not in_time or running.status is None:
        raise TimeoutError(f"{argv[0]!r} ran longer than {timeout_s:g} s")
    return running.status, output.bytes()
