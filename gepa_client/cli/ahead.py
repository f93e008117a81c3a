"""Faults that would end a run for certain, found before anything is tried or written."""

import asyncio
from pathlib import Path

from gepa_client.errors import ConnectionLost
from gepa_client.run.config import NOBODY_PROPOSES, RunConfig
from gepa_client.run.folder import refuse_results
from gepa_client.run.settings import SettingsError


def look_ahead(settings: RunConfig, *, output: Path | None) -> None:
    """One `discover` at the first server that answers, and no metric call.

    Raises:
        SettingsError: the folder for the results is in use, the reflection model can never answer, or nobody proposes.
        ClientError, RpcError: the server cannot be used.
    """
    if output is not None:
        try:
            refuse_results(output)
        except OSError as error:
            raise SettingsError(f"no folder for the results: {error}") from error
    look_at_model(settings)
    offered = asyncio.run(_capabilities(settings))
    if settings.reflection_lm is None and "proposals" not in offered:
        raise SettingsError(NOBODY_PROPOSES)


def look_at_model(settings: RunConfig) -> None:
    """Raises SettingsError where no call to the reflection model can succeed; loads litellm only where one is named."""
    if settings.reflection_lm is None:
        return
    from gepa_client.litellm_model import fault

    if found := fault(settings.reflection_lm, settings.reflection_lm_kwargs or {}):
        raise SettingsError(f"{found} (nothing was run)")


async def _capabilities(settings: RunConfig) -> list[str]:
    """What the first server that answers offers."""
    from gepa_client.rpc import RpcClient  # aiohttp comes with it, which `--help` does not need
    from gepa_client.run.endpoints import endpoints

    lost: ConnectionLost | None = None
    for at in endpoints(settings):
        try:
            async with RpcClient(at.url, token_file=at.token_file, allow_insecure=at.allow_insecure) as client:
                return list((await client.discover()).capabilities)
        except ConnectionLost as error:
            lost = lost or error
    raise lost or AssertionError("there is at least one endpoint")
