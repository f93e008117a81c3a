"""Ask the provider of a reflection model about the model, which costs nothing, before anything is spent."""

import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from evolverpc_common.display_text import plain

TIMEOUT_S = 10.0
LONGEST_REASON = 200
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


def connection_fault(name: str, kwargs: Mapping[str, Any]) -> str | None:
    """Return why calls to this model would fail: no connection, a refused key, or an unknown model; else None.

    `kwargs`: the arguments of every call. A provider whose address is not known is left for the first call to judge,
    and so is any response other than a refusal of the key or of the model.
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
        urlopen(Request(url, headers=headers), timeout=TIMEOUT_S).close()  # noqa: S310  # http or https
    except HTTPError as refused:
        return _refusal(name, model, url, refused) if headers else None
    except URLError as error:
        if isinstance(error.reason, ssl.SSLError):
            return None  # litellm may trust other certificates
        reason = getattr(error.reason, "strerror", None) or error.reason
        return f"the model {name} does not answer at {address}: {reason}"
    except (OSError, HTTPException):  # there is a server, which is busy or expects other requests
        return None
    return None


def _key(given: object, provider: _Provider) -> str | None:
    if not isinstance(given, str):
        return os.environ.get(provider.key)
    return os.environ.get(given.removeprefix(FROM_ENVIRONMENT)) if given.startswith(FROM_ENVIRONMENT) else given


def _refusal(name: str, model: str, url: str, refused: HTTPError) -> str | None:
    """Return what a response states of the key or the model; None for a server that describes no models."""
    with refused:
        try:
            error = json.loads(refused.read()).get("error")
        except (ValueError, AttributeError, OSError, HTTPException):
            error = None
    reason = (
        plain(str(error["message"]), limit=LONGEST_REASON) if isinstance(error, dict) and "message" in error else ""
    )
    if refused.code == 401:
        return f"the key of the model {name} is refused at {url}: {reason or 'status 401'}; set another one"
    if refused.code == 404 and model in reason:
        return f"there is no model {name} at {url}: {reason}"
    return None
