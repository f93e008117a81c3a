"""A command run for a tree: bounded in time, its output kept for whoever has to mend what it complains of."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from protocol.errors import ProgramFailed
from rpc_server.commands.supervised import MAX_OUTPUT_BYTES, run_supervised
from rpc_server.jail.jail import Cell
from rpc_server.program.logtail import LogTail


async def run_command(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    stage: str,
    cell: Cell | None,
) -> None:
    """Run it to its end, in a jail where one is given. Nothing of it is left when this returns, raises or is cancelled.

    Raises:
        ProgramFailed: it cannot be started, exits with another status than 0, takes longer, or writes too much; with
            `stage` and `log_tail`.
    """
    log = LogTail()

    def on_lines(lines: list[bytes]) -> None:
        log.write(b"\n".join(lines) + b"\n")

    name = Path(command[0]).name
    try:
        outcome = await run_supervised(
            command,
            folder=folder,
            environment=environment,
            stdin=b"",
            timeout_s=timeout_s,
            on_lines=on_lines,
            on_log=log.write,
            cell=cell,
        )
    except OSError as error:
        raise ProgramFailed(f"cannot run {name!r}: {error.strerror}", stage=stage, log_tail="") from None
    if outcome.out_of_time:
        raise ProgramFailed(f"{name!r} ran longer than {timeout_s:g} s", stage=stage, log_tail=log.since())
    if outcome.too_much_output:
        said = f"{name!r} wrote more than {MAX_OUTPUT_BYTES} bytes of output"
        raise ProgramFailed(said, stage=stage, log_tail=log.since())
    if outcome.status != 0:
        raise ProgramFailed(f"{name!r} exited with status {outcome.status}", stage=stage, log_tail=log.since())
