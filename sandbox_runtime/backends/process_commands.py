"""Run the commands of the process backend and of builds: read all output, and end everything that a command started."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from evolverpc_common import process_reaper
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import EXEC_BYTES, EnvironmentMissing
from sandbox_runtime.backends.local_backend import captured, end_processes, pids_with_words

END_S = 25.0
"""Seconds that a reaper may take to end everything; it gives up after 20."""


async def run_command(
    argv: Sequence[str],
    options: Sequence[str],
    env: Mapping[str, str],
    stdin: int,
    stdout: OutputTail,
    stderr: OutputTail | None = None,
    *,
    timeout_s: float | None = None,
    listening: socket.socket | None = None,
) -> int | None:
    """Run a command under a reaper of its own, with these options of `process_reaper`; end everything that it started.

    Return its status, None if it took longer. `stderr` None: it is written to `stdout`. `listening`: closed as soon as
    the command has it. The command ends soon after this process, also if that is killed.

    Raises:
        OSError: no process can be started.
    """
    passed = [] if listening is None else [listening.fileno()]
    async with contextlib.AsyncExitStack() as stack:
        out = await stack.enter_async_context(captured(stdout))
        err = out if stderr is None else await stack.enter_async_context(captured(stderr))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", process_reaper.__file__, f"--owner={os.getpid()}", *options),
            *(f"--listening={descriptor}" for descriptor in passed),
            *("--", *argv),
            stdin=stdin,
            stdout=out,
            stderr=err,
            env=dict(env),
            pass_fds=passed,
            start_new_session=True,
        )
        if listening is not None:
            listening.close()
        waiting = asyncio.create_task(process.wait())
        try:
            done, _ = await asyncio.wait({waiting}, timeout=timeout_s)
        finally:
            if not waiting.done():
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await await_shielded(asyncio.wait({waiting}, timeout=END_S))
        status = process.returncode if done else None
        return status if status is None or status >= 0 else 128 - status


async def run_build(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    readable: Sequence[str],  # noqa: ARG001  all of this machine is
) -> tuple[int, bytes]:
    """Run one command of a build, see `build_folder.RunBuildCommand`. Raises `TimeoutError`, `EnvironmentMissing`."""
    output = OutputTail(EXEC_BYTES)
    mark = f"build-{secrets.token_hex(6)}"
    try:
        options = (f"--mark={mark}", f"--folder={cwd}")
        status = await run_command(argv, options, env, asyncio.subprocess.DEVNULL, output, timeout_s=timeout_s)
    except OSError as error:
        raise EnvironmentMissing(f"{argv[0]!r} cannot be run: {error}") from error
    if status is None:
        raise TimeoutError(f"{argv[0]!r} ran longer than {timeout_s:g} s")
    return status, output.bytes()


def end_marked(mark: str) -> None:
    """End all commands of this mark, of any process. Blocks. Raises `OSError` if some remain."""
    # Killing a reaper would release what it holds.
    end_processes(lambda: pids_with_words(f"--mark={mark}"), signal.SIGTERM, END_S)
