"""Find errors that would certainly end a run, before anything is tried or written."""

import asyncio
from pathlib import Path

from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import ClientError
from gepa_client.run.output_folder import refuse_results
from gepa_client.settings.run_config import NO_PROPOSER, RunConfig
from gepa_client.transport.address import rpc_url
from protocol.errors import RpcError


def preflight(settings: RunConfig, *, output: Path | None) -> None:
    """Check the settings and call `discover` once at each server, without a metric call.

    Raises:
        SettingsError: the folder for the results is in use, the reflection model cannot answer, or no proposer.
        ClientError, RpcError: no server can be used; the error of the first one.
    """
    preflight_output(output)
    preflight_model(settings)
    offered = asyncio.run(_capabilities(settings))
    if settings.reflection_lm is None and "proposals" not in offered:
        raise SettingsError(NO_PROPOSER)


def preflight_output(output: Path | None) -> None:
    """Raise SettingsError if the folder for the results is in use."""
    if output is not None:
        try:
            refuse_results(output)
        except OSError as error:
            raise SettingsError(f"no folder for the results: {error}") from error


def preflight_model(settings: RunConfig) -> None:
    """Raise SettingsError if no call to the reflection model can succeed; loads litellm only if one is named."""
    if settings.reflection_lm is None:
        return
    from gepa_client.gepa.litellm_model import fault

    if found := fault(settings.reflection_lm, settings.reflection_lm_kwargs or {}):
        raise SettingsError(f"{found} (nothing was run)")


async def _capabilities(settings: RunConfig) -> list[str]:
    """Return the capabilities of all servers that answer; raise the first one's error if none does."""
    from gepa_client.fleet.endpoints_file import Address
    from gepa_client.run.resolved_settings import endpoints
    from gepa_client.transport.rpc import RESENDS, RpcClient  # aiohttp comes with it, which `--help` does not need

    addresses = endpoints(settings)
    resends = RESENDS if len(addresses) == 1 else 0

    async def offered(at: Address) -> list[str] | Exception:
        rpc_url(at.url, allow_insecure=at.allow_insecure)  # what cannot be an address is no endpoint that is away
        try:
            async with RpcClient(
                at.url,
                token_file=at.token_file,
                proxy_token_file=at.proxy_token_file,
                allow_insecure=at.allow_insecure,
            ) as client:
                return list((await client.discover(resends=resends)).capabilities)
        except (ClientError, RpcError) as error:
            return error

    answers = await asyncio.gather(*(offered(at) for at in addresses))
    answered = [answer for answer in answers if not isinstance(answer, Exception)]
    if not answered:
        raise next(answer for answer in answers if isinstance(answer, Exception))
    return sorted({capability for capabilities in answered for capability in capabilities})
