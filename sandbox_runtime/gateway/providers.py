"""What programs reach through the gateway: model providers and hosts with a secret header, and their variables."""

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
_HOST = re.compile(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?(:[1-9][0-9]{0,4})?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET = re.compile(r"[!-~]+( [!-~]+)*")

HOP_HEADERS = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "content-length", "content-encoding", "accept-encoding", "expect"),
    }
)
"""Headers that HTTP itself, or the gateway, sets for each connection: none of them carries a secret."""


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


@dataclass(frozen=True)
class SecretHeader:
    """A header that the gateway sets in requests to one host, which programs reach at the URL in `variable`.

    `host`: in small letters, with `:PORT` if it is not 443. `prefix`: what precedes the secret, such as `Bearer `.
    `scheme`: `https`, or `http`.

    Raises:
        ValueError: a value is invalid; the message names the host and never the secret.
    """

    host: str
    header: str
    secret: str = field(repr=False)
    prefix: str = ""
    scheme: str = "https"

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host) or int(self.host.partition(":")[2] or 443) > 65535:
            raise ValueError(f"{self.host!r} is not a host: use HOST or HOST:PORT, in small letters and without a path")
        if not _TOKEN.fullmatch(self.header) or self.header.lower() in HOP_HEADERS:
            raise ValueError(f"{self.host}: {self.header!r} is not the name of a header that can carry a secret")
        if not _SECRET.fullmatch(self.secret) or not _SECRET.fullmatch(self.value):
            reason = "is empty, or holds a line break, a needless space or a character beyond ASCII"
            raise ValueError(f"{self.host}: the secret for {self.header} {reason}")

    @property
    def value(self) -> str:
        """The header's value."""
        return self.prefix + self.secret

    @property
    def variable(self) -> str:
        """The programs' variable that gets the address: `GATEWAY_URL_API_EXAMPLE_COM` for `api.example.com`."""
        return "GATEWAY_URL_" + re.sub("[^A-Z0-9]", "_", self.host.upper())


def check_together(headers: Sequence[SecretHeader]) -> None:
    """Raise `ValueError` if two headers are the same one of a host, or two hosts have one variable."""
    hosts: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    for one in headers:
        if (one.host, one.header.lower()) in seen:
            raise ValueError(f"secret_headers: {one.header} of {one.host} is given twice")
        seen.add((one.host, one.header.lower()))
        if (other := hosts.setdefault(one.variable, one.host)) != one.host:
            raise ValueError(f"secret_headers: programs would find both {other} and {one.host} in {one.variable}")


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
    counts_streams: bool = True,
    extra_fields: Sequence[str] = (),
) -> Provider:
    """Return a further provider (OpenRouter, Gemini's OpenAI interface, a local server), its key read from `key_env`.

    `key_env` None: it needs no key. The programs' variables are `NAME_BASE_URL`, `NAME_API_BASE` and
    `NAME_API_KEY`, and the key travels as the dialect's own provider expects it.

    Raises:
        ValueError: `key_env` is not set, or a value is invalid as in `Provider`.
    """
    key = environ.get(key_env, "") if key_env else ""
    if key_env and not key:
        raise ValueError(f"provider {name}: its key is to be in {key_env}, which is not set")
    prefix = name.upper().replace("-", "_")
    urls, keys = (f"{prefix}_BASE_URL", f"{prefix}_API_BASE"), (f"{prefix}_API_KEY",)
    header = key_header or ("x-api-key" if dialect == "anthropic" else "Authorization")
    return Provider(name, base_url, key, dialect, header, urls, keys, counts_streams, tuple(extra_fields))
