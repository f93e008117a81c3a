"""Run commands as plain processes: read all output, and end everything that a command started."""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from evolverpc_common import process_reaper
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import EXEC_BYTES, EnvironmentMissing
from sandbox_runtime.backends.local_steps import OutputCapture, end_processes, pids_with_words

END_S = 25.0
"""Seconds that a reaper may take to end everything; it gives up after 20."""

_DRAIN_S = 2.0
"""How long the end of a command's pipes is waited for after it has ended: another process may hold them."""


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of each process, in bytes: private writable memory, and the size of a file that it writes; -1: none."""

    memory: int = -1
    file: int = -1


class RunningCommand:
    """A started command under its own reaper, which ends everything that the command started; see `process_reaper`."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._captures: list[OutputCapture] = []
        self._exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

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
        """Start it; one that cannot run ends with status 126 or 127. Call `status` in any case.

        `mark`: the name by which `end_marked` finds it. `stderr` None: it is written to `stdout`. It ends soon after
        this process, also if that is killed.

        Raises:
            OSError: no process can be started, or `stdin` cannot be read.
        """
        with _opened(stdin) as source:
            process = subprocess.Popen(  # noqa: S603  a millisecond; the caller chooses the command
                (
                    *(sys.executable, "-I", "-S", process_reaper.__file__, f"--mark={mark}", f"--folder={folder}"),
                    f"--owner={os.getpid()}",
                    *(() if limits.memory < 0 else (f"--memory={limits.memory}",)),
                    *(() if limits.file < 0 else (f"--file-size={limits.file}",)),
                    *(() if listening < 0 else (f"--listening={listening}",)),
                    *("--", *argv),
                ),
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if stderr is None else subprocess.PIPE,
                env=dict(env),
                pass_fds=() if listening < 0 else (listening,),
                start_new_session=True,
            )
        try:
            running = cls(process)
        except OSError:  # no descriptor is free
            with process:
                process.kill()
            raise
        asyncio.get_running_loop().add_reader(running._pidfd, running._has_exited)
        for stream, tail in ((process.stdout, stdout), (process.stderr, stderr)):
            if stream is not None and tail is not None:
                running._captures.append(OutputCapture(stream, tail))
        return running

    async def status(self, timeout_s: float | None = None) -> int | None:
        """Wait for its exit status, None if it takes too long; end everything of it in any case."""
        try:
            await asyncio.wait([self._exited], timeout=timeout_s)
            in_time = self._exited.done()
        finally:
            await await_shielded(self._end())
        return self._exited.result() if in_time else None

    async def _end(self) -> None:
        """End everything that it started, and read the rest of the output."""
        if not self._exited.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            await asyncio.wait({self._exited}, timeout=END_S)
        await asyncio.gather(*(capture.close(_DRAIN_S) for capture in self._captures))

    def _has_exited(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        status = self._process.wait()
        self._exited.set_result(status if status >= 0 else 128 - status)


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
    status = await running.status(timeout_s)
    if status is None:
        raise TimeoutError(f"{argv[0]!r} ran longer than {timeout_s:g} s")
    return status, output.bytes()


def end_marked(mark: str) -> None:
    """End all commands of this mark, of any process. Blocks. Raises `OSError` if some remain."""
    # Killing a reaper would release what it holds.
    end_processes(lambda: pids_with_words(f"--mark={mark}"), signal.SIGTERM, END_S)
