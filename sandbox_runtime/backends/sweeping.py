"""Sweeps the sandboxes of this machine that records tell of: those of a runtime's own are closed, others are freed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from sandbox_runtime.api.sandbox import Sandbox, SandboxError
from sandbox_runtime.backends.records import Record, Records


async def sweep_records(
    records: Records,
    labels: Mapping[str, str] | None,
    ours: Mapping[str, Sandbox],
    free: Callable[[Record], Awaitable[None]],
    *,
    orphans_only: bool,
) -> list[str]:
    """As `Runtime.sweep`. `ours`: those that are up here, by their ids; `free`: ends what a record tells of.

    Raises:
        SandboxError: not all could be swept; those that could were.
    """
    swept, faults = [], []
    for record in await asyncio.to_thread(records.all, labels):
        sandbox = ours.get(record.id)
        if orphans_only and (sandbox is not None or not record.is_orphan):
            continue
        try:
            if sandbox is not None:
                await sandbox.close()
            elif record.unknown:
                raise SandboxError(record.unknown)
            else:
                await free(record)
            swept.append(record.id)
        except (SandboxError, OSError) as error:
            faults.append(f"{record.id}: {error}")
    if faults:
        raise SandboxError(f"swept {len(swept)} sandboxes, but not all: {'; '.join(faults)}")
    return swept
