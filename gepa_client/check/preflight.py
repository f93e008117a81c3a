"""Find errors that would certainly end a run, before it starts.

Whether the reflection model can be called is seen too: its provider is asked, which costs nothing, or one call is made.
So a wrong key, address or name is found before a run spends its budget.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from evolverpc_common.display_text import one_line
from evolverpc_common.files import no_such_file
from evolverpc_common.model_prices import PriceTable
from evolverpc_common.network_addresses import Network
from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.check_report import StepVerdict
from gepa_client.errors import ClientError, ConnectionLost, summary
from gepa_client.run.output_folder import refuse_results
from gepa_client.settings.run_config import NO_PROPOSER, ROW_SETTINGS, RunConfig
from gepa_client.settings.run_settings import is_file
from gepa_client.transport.address import Address, rpc_url
from protocol.errors import RpcError

if TYPE_CHECKING:  # heavy
    from evolverpc_common.judged_http import Answer
    from protocol import DiscoverResult

PROMPT = "Answer with one word: ready"
_LONGEST_REASON = 300
"""Characters of a provider's error that are shown."""

TIMEOUT_S = 10.0
LARGEST_ANSWER = 64 << 10
FROM_ENVIRONMENT = "os.environ/"
"""How litellm marks an argument that names a variable."""


@dataclass(frozen=True)
class _Provider:
    """`address`: default of the API; `bases`, `key`: the variables of another address and of the key.

    `model`: below the address, what describes a model. `headers`: returns those that carry a key.
    """

    address: str
    bases: tuple[str, ...]
    key: str
    model: str
    headers: Callable[[str], dict[str, str]]


_PROVIDERS = {
    "openai": _Provider(
        "https://api.openai.com/v1",
        ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        "OPENAI_API_KEY",
        "/models/",
        lambda key: {"Authorization": f"Bearer {key}"},
    ),
    "anthropic": _Provider(
        "https://api.anthropic.com",
        ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
        "ANTHROPIC_API_KEY",
        "/v1/models/",
        lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"},
    ),
}


def preflight(settings: RunConfig, allowed: Sequence[Network] | None = None) -> None:
    """Check the settings, call `discover` once at each server, and ask for the reflection model; nothing is paid for.

    `allowed`: as of `connection_fault`.

    Raises:
        SettingsError: there are `settings_faults`, named together with a server that is away; the reflection model
            cannot answer; or nothing can propose texts.
        ClientError, RpcError: no server can be used; the error of the first one.
    """
    from gepa_client.run.resolved_settings import endpoints
    from gepa_client.transport.event_loop import run_to_end

    faults = settings_faults(settings)
    servers = endpoints(settings)
    for server in servers:
        rpc_url(server.url, allow_insecure=server.allow_insecure)  # an invalid address is no unreachable server
    answers = run_to_end(discovered(servers, resend=len(servers) == 1 and not faults))
    found = [answer for answer in answers if not isinstance(answer, Exception)]
    if not found:
        first = next(answer for answer in answers if isinstance(answer, Exception))
        if not faults:
            raise first
        faults.append(summary(first))
    if faults:
        raise SettingsError("\n".join(faults))
    preflight_model(settings)
    if settings.reflection_lm is None and not any("proposals" in each.capabilities for each in found):
        raise SettingsError(NO_PROPOSER)
    preflight_connection(settings, allowed)


def settings_faults(settings: RunConfig) -> list[str]:
    """Return what can be seen at once to end a run: the folder for the results, files of rows, the model's key."""
    faults = []
    if settings.output is not None:
        try:
            refuse_results(settings.output)
        except OSError as error:
            faults.append(f"no folder for the results: {error}")
    for name in ROW_SETTINGS:
        rows = getattr(settings, name)
        if isinstance(rows, str) and is_file(rows) and not os.path.exists(rows):  # noqa: PTH110  never raises
            faults.append(f"`{name}`: {no_such_file(rows)}")
    if settings.reflection_lm is not None:
        from gepa_client.gepa.litellm_model import missing_key

        missing = missing_key(settings.reflection_lm, settings.reflection_lm_kwargs or {})
        faults += [f"{missing} (nothing was run)"] if missing else []
    return faults


def preflight_model(settings: RunConfig) -> None:
    """Raise SettingsError if no call to the reflection model can succeed; may load litellm."""
    if settings.reflection_lm is None:
        return
    from gepa_client.gepa.litellm_model import fault

    if found := fault(settings.reflection_lm, settings.reflection_lm_kwargs or {}):
        raise SettingsError(f"{found} (nothing was run)")


def preflight_connection(settings: RunConfig, allowed: Sequence[Network] | None = None) -> None:
    """Raise SettingsError if the provider of the reflection model is out of reach or refuses; not if `check` is off."""
    if settings.reflection_lm is None or settings.check == "off":
        return
    from gepa_client.gepa.litellm_model import ADDRESS

    if found := connection_fault(settings.reflection_lm, settings.reflection_lm_kwargs or {}, allowed):
        raise SettingsError(f"{found}; {ADDRESS} (nothing was run; set `check` to off to start the run all the same)")


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


def connection_fault(name: str, kwargs: Mapping[str, Any], allowed: Sequence[Network] | None = None) -> str | None:
    """Return why calls to this model would fail: no connection, a refused key, or an unknown model; else None.

    `kwargs`: the arguments of every call. `allowed`: the networks that may be asked besides public ones, if a tenant of
    a service named the address; None allows every address. A provider whose address is not known is left for the first
    call to judge, and so is any response other than a refusal of the key or of the model.
    """
    import aiohttp  # slow to import

    from evolverpc_common.judged_http import AddressRefused, ask
    from gepa_client.transport.event_loop import run_to_end

    prefix, _, model = name.partition("/")
    provider = _PROVIDERS.get(prefix)
    address = kwargs.get("api_base") or kwargs.get("base_url")
    if provider is not None:
        address = address or next(filter(None, map(os.environ.get, provider.bases)), provider.address)
    if not isinstance(address, str) or not address.startswith(("http://", "https://")):
        return None
    url, headers = address.rstrip("/"), dict[str, str]()
    if provider is not None:
        url += provider.model + quote(model, safe="")
        if key := _key(kwargs.get("api_key"), provider):
            headers = provider.headers(key)
    try:
        answer = run_to_end(
            ask("GET", url, allowed=allowed, headers=headers, timeout_s=TIMEOUT_S, most_bytes=LARGEST_ANSWER)
        )
    except AddressRefused as error:
        return f"the model {name} is not asked at {address}: {error}"
    except aiohttp.ClientSSLError:
        return None  # litellm may trust other certificates
    except aiohttp.ClientConnectorDNSError:
        return f"the model {name} does not answer at {address}: no such host"
    except aiohttp.ClientConnectorError as error:
        reason = os.strerror(error.os_error.errno) if error.os_error.errno else error.os_error
        return f"the model {name} does not answer at {address}: {reason}"
    except (
        aiohttp.ClientError,
        TimeoutError,
        ValueError,
    ):  # there is a server, which is busy or expects other requests
        return None
    return _refusal(name, model, url, answer) if headers else None


def _key(given: object, provider: _Provider) -> str | None:
    if not isinstance(given, str):
        return os.environ.get(provider.key)
    return os.environ.get(given.removeprefix(FROM_ENVIRONMENT)) if given.startswith(FROM_ENVIRONMENT) else given


def _refusal(name: str, model: str, url: str, answer: "Answer") -> str | None:
    """Return what a response states of the key or the model; None for a server that describes no models.

    Nothing of its text is repeated: the address may be one that the reader of the message cannot reach.
    """
    if answer.status == 401:
        return f"the key of the model {name} is refused at {url} (status 401); set another one"
    if answer.status == 404 and model in _message(answer.body):
        return f"there is no model {name} at {url} (status 404)"
    return None


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return ""


def call_reflection_model(name: str, kwargs: Mapping[str, Any], prices: PriceTable) -> tuple[StepVerdict, str]:
    """Return how one short call of the model ended, and what it cost.

    `kwargs`: the arguments of every call. `prices`: those that the settings give. A failure that may pass (a rate
    limit, a server error) is a warning: the run tries such calls again.
    """
    from gepa_client.gepa.litellm_model import (
        ADDRESS,
        LiteLLMModel,
        address_of,
        loaded_litellm,
        may_pass,
    )

    loaded_litellm()  # its time is not the model's
    began = time.monotonic()
    try:
        answer = LiteLLMModel(name, max_attempts=1, prices=prices, **kwargs).complete(PROMPT)
    except ConnectionLost as error:
        return "failed", str(error)
    except Exception as error:  # noqa: BLE001 - litellm raises many kinds, its bare Exception among them
        reason = f"{name}: {one_line(f'{type(error).__name__}: {error}', _LONGEST_REASON)}"
        if may_pass(error):
            return "warning", f"{reason} (a run calls it again)"
        if (where := address_of(error)) is None:
            return "failed", f"{reason}; set its key (any text, if its server needs none) or its name"
        return "failed", f"{reason}; it was called at {where}; set its key, its name or, {ADDRESS}"
    cost = "at an unknown price" if answer.cost_usd is None else f"for ${answer.cost_usd:.6f}"
    return "ok", f"by {name}, which answered one call in {time.monotonic() - began:.1f} s {cost}"
