"""Runs what builds an environment, as a plain process."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from evolverpc_common.shielded import all_of
from evolverpc_common.tail import Tail
from sandbox_runtime.api.sandbox import EXEC_BYTES, NotPrepared
from sandbox_runtime.backends.process.running import Bounds, Running


async def run_build(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    readable: Sequence[str],  # noqa: ARG001  all of this machine is
) -> tuple[int, bytes]:
    """One command, as `environments.Run` says. Raises `TimeoutError`, `NotPrepared`."""
    output = Tail(EXEC_BYTES)
    mark = f"build-{secrets.token_hex(6)}"
    try:
        running = Running.start(argv, mark=mark, folder=cwd, env=env, bounds=Bounds(), stdout=output)
    except OSError as error:
        raise NotPrepared(f"{argv[0]!r} cannot be run: {error}") from error
    try:
        in_time = await running.finished(timeout_s)
    finally:
        await all_of(running.end())
    if not in_time or running.status is None:
        raise TimeoutError(f"{argv[0]!r} ran longer than {timeout_s:g} s")
    return running.status, output.bytes()
