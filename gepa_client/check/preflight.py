"""Find errors that would certainly end a run, before anything is tried or written."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evolverpc_common.network_addresses import Network
from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import ClientError
from gepa_client.run.output_folder import refuse_results
from gepa_client.settings.run_config import NO_PROPOSER, RunConfig
from gepa_client.transport.address import Address, rpc_url
from protocol.errors import RpcError

if TYPE_CHECKING:  # heavy
    from protocol import DiscoverResult


def preflight(settings: RunConfig, allowed: Sequence[Network] | None = None) -> None:
    """Check the settings, call `discover` once at each server, and ask for the reflection model; nothing is paid for.

    `allowed`: as of `connection_fault`.

    Raises:
        SettingsError: the folder for the results is in use, the reflection model cannot answer, or no proposer.
        ClientError, RpcError: no server can be used; the error of the first one.
    """
    preflight_output(settings)
    preflight_model(settings)
    from gepa_client.run.resolved_settings import endpoints
    from gepa_client.transport.event_loop import run_to_end

    servers = endpoints(settings)
    for server in servers:
        rpc_url(server.url, allow_insecure=server.allow_insecure)  # an invalid address is no unreachable server
    answers = run_to_end(discovered(servers, resend=len(servers) == 1))
    found = [answer for answer in answers if not isinstance(answer, Exception)]
    if not found:
        raise next(answer for answer in answers if isinstance(answer, Exception))
    if settings.reflection_lm is None and not any("proposals" in each.capabilities for each in found):
        raise SettingsError(NO_PROPOSER)
    preflight_connection(settings, allowed)


def preflight_output(settings: RunConfig) -> None:
    """Raise SettingsError if the folder for the results is in use."""
    if settings.output is not None:
        try:
            refuse_results(settings.output)
        except OSError as error:
            raise SettingsError(f"no folder for the results: {error}") from error


def preflight_model(settings: RunConfig) -> None:
    """Raise SettingsError if no call to the reflection model can succeed; loads litellm only if one is named."""
    if settings.reflection_lm is None:
        return
    from gepa_client.gepa.litellm_model import fault

    if found := fault(settings.reflection_lm, settings.reflection_lm_kwargs or {}):
        raise SettingsError(f"{found} (nothing was run)")


def preflight_connection(settings: RunConfig, allowed: Sequence[Network] | None = None) -> None:
    """Raise SettingsError if the provider of the reflection model is out of reach or refuses; not if `check` is off."""
    if settings.reflection_lm is None or settings.check == "off":
        return
    from gepa_client.check.reflection_model import connection_fault
    from gepa_client.gepa.litellm_model import ADDRESS

    if found := connection_fault(settings.reflection_lm, settings.reflection_lm_kwargs or {}, allowed):
        raise SettingsError(f"{found}; {ADDRESS} (nothing was run; `check` set to off starts the run all the same)")


async def discovered(servers: Sequence[Address], *, resend: bool) -> "list[DiscoverResult | ClientError | RpcError]":
    """Return what each server describes, or why it is unavailable. `resend`: wait for one that is about to start."""
    from gepa_client.transport.rpc_client import RpcClient

    async def discover(server: Address) -> "DiscoverResult | ClientError | RpcError":
        try:
            async with RpcClient(server) as client:
                return await (client.discover() if resend else client.discover(resends=0))
        except (ClientError, RpcError) as error:
            return error

    return await asyncio.gather(*map(discover, servers))
