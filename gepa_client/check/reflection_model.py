"""Whether the reflection model can be called: ask its provider, which costs nothing, or make one call.

A wrong key, address or name is found before a run spends its budget.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

from evolverpc_common.display_text import one_line
from evolverpc_common.judged_http import AddressRefused, Answer, ask
from evolverpc_common.network_addresses import Network
from gepa_client.check.check_report import StepVerdict
from gepa_client.errors import ConnectionLost
from gepa_client.transport.event_loop import run_to_end

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


def connection_fault(name: str, kwargs: Mapping[str, Any], allowed: Sequence[Network] | None = None) -> str | None:
    """Return why calls to this model would fail: no connection, a refused key, or an unknown model; else None.

    `kwargs`: the arguments of every call. `allowed`: the networks that may be asked besides public ones, if a tenant of
    a service named the address; None allows every address. A provider whose address is not known is left for the first
    call to judge, and so is any response other than a refusal of the key or of the model.
    """
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


def _refusal(name: str, model: str, url: str, answer: Answer) -> str | None:
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


def call_reflection_model(name: str, kwargs: Mapping[str, Any]) -> tuple[StepVerdict, str]:
    """Return how one short call of the model ended, and what it cost.

    `kwargs`: the arguments of every call. A failure that may pass (a rate limit, a server error) is a warning: the run
    tries such calls again.
    """
    from gepa_client.gepa.litellm_model import (
        ADDRESS,
        LiteLLMModel,
        address_of,
        may_pass,
    )  # litellm takes seconds to import

    began = time.monotonic()
    try:
        answer = LiteLLMModel(name, max_attempts=1, **kwargs).complete(PROMPT)
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
