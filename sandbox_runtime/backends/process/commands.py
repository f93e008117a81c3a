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

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.process_identity import started_at
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import EXEC_BYTES, EnvironmentMissing
from sandbox_runtime.backends.process.marked_processes import MARK, REAPER, end_all, terminate_and_wait
from sandbox_runtime.backends.shared_steps import OutputCapture

_DRAIN_S = 2.0
"""How long the end of a command's pipes is waited for after it has ended: another process may hold them."""


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of each process, in bytes: private writable memory, and the size of a file that it writes; -1: none."""

    memory: int = -1
    file: int = -1


class RunningCommand:
    """A started command under its own reaper.

    `exited`: done when it has ended, with its exit status, 128 + signal if a signal ended it.
    """

    def __init__(self, mark: str, process: "subprocess.Popen[bytes]") -> None:
        self._mark = mark
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._started = started_at(process.pid) or 0  # 0 where it has ended already
        self._captures: list[OutputCapture] = []
        self._left: set[int] | None = None
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

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
    ) -> Self:
        """Start it; one that cannot run ends with status 126 or 127. Call `end` in any case.

        `stderr` None: it is written to `stdout`. It ends soon after this process, also if that is killed.

        Raises:
            OSError: no process can be started, or `stdin` cannot be read.
        """
        with _opened(stdin) as source:
            process = subprocess.Popen(  # noqa: S603  a millisecond; the caller chooses the command
                (
                    *(sys.executable, "-I", "-S", REAPER, f"--folder={folder}"),
                    f"--owner={os.getpid()}",
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
        asyncio.get_running_loop().add_reader(running._pidfd, running._has_exited)
        for stream, tail in ((process.stdout, stdout), (process.stderr, stderr)):
            if stream is not None and tail is not None:
                running._captures.append(OutputCapture(stream, tail))
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

    async def end(self) -> set[int]:
        """End everything that it started, and read the rest of the output; return the pids that remain."""
        if self._left is not None:
            return self._left
        left = self._left = await asyncio.to_thread(self._end_all)
        self._has_exited()
        os.close(self._pidfd)
        self._process.poll()
        await asyncio.gather(*(capture.close(_DRAIN_S) for capture in self._captures))
        return left

    def _end_all(self) -> set[int]:
        terminate_and_wait([self._pidfd])
        return end_all(self._mark, lambda: self.pid, since=self._started)

    def _has_exited(self) -> None:
        """Report the exit. `end` waits for the process, so that its pid and session stay its own until then."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None and not self.exited.done():
            self.exited.set_result(found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status)


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
        await asyncio.wait([running.exited], timeout=timeout_s)
        in_time = running.exited.done()
    finally:
        await await_shielded(running.end())
    if not in_time:
        raise TimeoutError(f"{argv[0]!r} ran longer than {timeout_s:g} s")
    return running.exited.result(), output.bytes()
