"""Closing sandboxes where one that cannot be freed must not keep the others, or another error, from being told."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from sandbox_runtime.api.sandbox import SandboxError

logger = logging.getLogger(__name__)


class Closable(Protocol):
    """What of a `Sandbox` is needed for it."""

    async def close(self) -> None:
        """See `Sandbox`."""
        ...


async def close_all(sandboxes: Iterable[Closable]) -> None:
    """Close them at the same time, each to its end.

    Raises:
        SandboxError: then, where some could not be freed: how many, and what was in the way of the first.
    """
    outcomes = await asyncio.gather(*(sandbox.close() for sandbox in list(sandboxes)), return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for error in errors:
        if not isinstance(error, Exception):
            raise error
    if errors:
        raise SandboxError(f"{len(errors)} of {len(outcomes)} sandboxes could not be freed: {errors[0]}") from errors[0]


async def close_after_failure(sandbox: Closable) -> None:
    """Close one whose failure is told; that it cannot be freed is logged."""
    try:
        await sandbox.close()
    except SandboxError as error:
        logger.warning("%s", error)
