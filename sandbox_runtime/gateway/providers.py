"""Model providers: their addresses and keys, and the variables by which programs find the gateway instead."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

Dialect = Literal["openai", "anthropic"]

PATHS: Mapping[Dialect, frozenset[str]] = {
    "openai": frozenset({"/chat/completions", "/completions", "/responses", "/embeddings"}),
    "anthropic": frozenset({"/messages", "/messages/count_tokens"}),
}
"""The paths below `/v1` that may be requested by POST: only those whose answers are tokens, which have a price."""

FREE = frozenset({"/messages/count_tokens"})

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_KEY = re.compile(r"[!-~]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Provider:
    """One provider, which programs reach at `<gateway>/NAME/v1/...`.

    `base_url`: as the provider's own clients expect it: with `/v1` (or what replaces it) for `openai`, without for
    `anthropic`. `key`: empty if it needs none. `key_header`: `Authorization` carries the key as `Bearer`, any other
    header as it is. `url_variables`, `key_variables`: the programs' variables that get the gateway's address and the
    sandbox's token. `counts_streams`: whether it supports `stream_options.include_usage`; without it, streams have no
    known cost. `extra_fields`: fields of request bodies that are forwarded besides `request_policy.FORWARDED`.

    Raises:
        ValueError: a value is invalid.
    """

    name: str
    base_url: str
    key: str = field(repr=False)
    dialect: Dialect = "openai"
    key_header: str = "Authorization"
    url_variables: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    counts_streams: bool = True
    extra_fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        url = urlsplit(self.base_url)
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} cannot name a provider: use small letters, digits and `-`")
        if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment or url.username:
            raise ValueError(f"provider {self.name}: base_url must be `http(s)://host[:port][/path]`")
        if not _KEY.fullmatch(self.key):
            raise ValueError(f"provider {self.name}: its key holds a space, a line break or a character beyond ASCII")
        if not _HEADER.fullmatch(self.key_header):
            raise ValueError(f"provider {self.name}: {self.key_header!r} is not the name of a header")
        if self.dialect not in PATHS:
            raise ValueError(f"provider {self.name}: dialect must be one of {', '.join(PATHS)}")
        for variable in (*self.url_variables, *self.key_variables):
            if not _VARIABLE.fullmatch(variable):
                raise ValueError(f"provider {self.name}: {variable!r} is not the name of a variable")

    def url(self, path: str) -> str:
        """Return the provider's URL for a path below `/v1`."""
        return self.base_url.rstrip("/") + ("/v1" if self.dialect == "anthropic" else "") + path

    def key_headers(self) -> dict[str, str]:
        """Return the header that carries the key."""
        if not self.key:
            return {}
        return {self.key_header: f"Bearer {self.key}" if self.key_header.lower() == "authorization" else self.key}

    def env(self, gateway: str, token: str) -> dict[str, str]:
        """Return the variables by which programs find the gateway in place of this provider."""
        url = f"{gateway.rstrip('/')}/{self.name}" + ("/v1" if self.dialect == "openai" else "")
        return {**dict.fromkeys(self.url_variables, url), **dict.fromkeys(self.key_variables, token)}


def openai(key: str, base_url: str = "https://api.openai.com/v1") -> Provider:
    """Return OpenAI, or a server that replaces it."""
    urls = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
    return Provider("openai", base_url, key, url_variables=urls, key_variables=("OPENAI_API_KEY",))


def anthropic(key: str, base_url: str = "https://api.anthropic.com") -> Provider:
    """Return Anthropic, or a server that replaces it."""
    return Provider(
        *("anthropic", base_url, key, "anthropic", "x-api-key"),
        url_variables=("ANTHROPIC_BASE_URL",),
        key_variables=("ANTHROPIC_API_KEY",),
    )


def known(environ: Mapping[str, str]) -> tuple[Provider, ...]:
    """Return OpenAI and Anthropic if these variables hold their keys; their addresses are read from there too.

    Raises:
        ValueError: a variable is invalid; the message names the provider and never the key.
    """
    found = []
    if key := environ.get("OPENAI_API_KEY"):
        urls = filter(None, map(environ.get, ("OPENAI_BASE_URL", "OPENAI_API_BASE")))
        found.append(openai(key, next(urls, "https://api.openai.com/v1")))
    if key := environ.get("ANTHROPIC_API_KEY"):
        found.append(anthropic(key, environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"))
    return tuple(found)


def configured(
    name: str,
    base_url: str,
    environ: Mapping[str, str],
    *,
    key_env: str | None = None,
    dialect: Dialect = "openai",
    key_header: str | None = None,
    url_variables: Sequence[str] | None = None,
    key_variables: Sequence[str] | None = None,
    counts_streams: bool = True,
    extra_fields: Sequence[str] = (),
) -> Provider:
    """Return a further provider (OpenRouter, Gemini's OpenAI interface, a local server), its key read from `key_env`.

    `key_env` None: it needs no key. By default the programs' variables are `NAME_BASE_URL`, `NAME_API_BASE` and
    `NAME_API_KEY`, and the key travels as the dialect's own provider expects it.

    Raises:
        ValueError: `key_env` is not set, or a value is invalid as in `Provider`.
    """
    key = environ.get(key_env, "") if key_env else ""
    if key_env and not key:
        raise ValueError(f"provider {name}: its key is to be in {key_env}, which is not set")
    prefix = name.upper().replace("-", "_")
    urls = (f"{prefix}_BASE_URL", f"{prefix}_API_BASE") if url_variables is None else tuple(url_variables)
    keys = (f"{prefix}_API_KEY",) if key_variables is None else tuple(key_variables)
    header = key_header or ("x-api-key" if dialect == "anthropic" else "Authorization")
    return Provider(name, base_url, key, dialect, header, urls, keys, counts_streams, tuple(extra_fields))
