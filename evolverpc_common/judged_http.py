"""Requests to addresses that others name: judged where they connect, without redirects, bounded in time and size.

A host's name is resolved once. Each address is judged where its socket is made, so that a request connects to what was
judged, also if the name leads elsewhere at another time, and also if the URL has an address in place of a name.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from evolverpc_common.network_addresses import Network, parse_address, refusal_reason


class AddressRefused(OSError):
    """The policy does not allow a connection to this address; the text does not name it."""


@dataclass(frozen=True)
class Answer:
    """`body`: its beginning, as far as it was asked for."""

    status: int
    body: bytes


async def ask(
    method: str,
    url: str,
    *,
    allowed: Sequence[Network] | None,
    headers: Mapping[str, str] | None = None,
    data: bytes | None = None,
    timeout_s: float,
    most_bytes: int = 0,
) -> Answer:
    """Make one request and return how it was answered; a redirect is an answer.

    `allowed`: the networks besides the public ones that may be reached, plain http these alone; None allows every
    address, and the proxy of this process's environment. `most_bytes`: of the body. `timeout_s`: for all of it.

    Raises:
        AddressRefused: the policy does not allow the address. aiohttp.ClientError, TimeoutError: there is no answer.
    """
    connector = judged_connector(allowed, plain=urlsplit(url).scheme != "https", force_close=True)
    proxy = environment_proxy(url) if allowed is None else None
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session,
            session.request(method, url, headers=headers, data=data, allow_redirects=False, proxy=proxy) as response,
        ):
            return Answer(response.status, await _beginning(response, most_bytes))
    except aiohttp.ClientConnectorError as error:
        if isinstance(error.os_error, AddressRefused):
            raise error.os_error from None
        raise


def judged_connector(allowed: Sequence[Network] | None, *, plain: bool = False, **options: Any) -> aiohttp.TCPConnector:
    """Return a connector that connects to public addresses and to those in the networks `allowed`; None allows all.

    `plain`: requests are not encrypted, and go to the networks `allowed` alone. `options`: aiohttp's. Another address
    ends a request with a `ClientConnectorError` whose `os_error` is an `AddressRefused`.
    """
    if allowed is None:
        return aiohttp.TCPConnector(**options)
    networks = tuple(allowed)

    def judged(info: Any) -> socket.socket:
        family, kind, protocol, _, where = info
        address = parse_address(str(where[0]))
        if address is None or refusal_reason(address, networks) is not None:
            raise AddressRefused("this is not a public host")
        if plain and not any(address in network for network in networks):
            raise AddressRefused("what is sent by plain http can be read on the way")
        return socket.socket(family, kind, protocol)

    return aiohttp.TCPConnector(socket_factory=judged, **options)


def environment_proxy(url: str) -> str | None:
    """Return the environment's proxy for a URL. aiohttp's `trust_env` would also use a password from `.netrc`."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


async def _beginning(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    found = bytearray()
    while len(found) < most_bytes and (part := await response.content.read(most_bytes - len(found))):
        found += part
    return bytes(found)
