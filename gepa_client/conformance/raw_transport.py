"""Send HTTP requests that no proper client sends: cut short, endless, without headers, each on its own connection.

Product calls use `gepa_client.transport.http_transport`. A conformance check needs what that file must never do: bodies
that never end or never come, absent headers, and connections closed in the middle.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Self

import aiohttp
from multidict import CIMultiDict

from gepa_client.errors import summary
from gepa_client.transport.address import find_token, http_url, rpc_url
from gepa_client.transport.http_transport import connector, unconnected

MAX_ANSWER_BYTES = 256 * 2**20
CHUNK_BYTES = 64 * 1024
AUTOMATIC = ("Content-Type", "User-Agent", "Accept", "Accept-Encoding")


class NoAnswer(Exception):
    """No answer: the connection was closed or never made, the time was over, or the answer had no end."""


class NotConnected(NoAnswer):
    """No server listens at the address."""


@dataclass(frozen=True)
class RawAnswer:
    """What came back: HTTP status, headers by lower-case name, body, seconds until all of it was there."""

    status: int
    headers: dict[str, str]
    body: bytes
    elapsed_s: float


class RawTransport:
    """Raw HTTP to one endpoint. Open it with `async with`; every request has a connection of its own.

    Raises:
        Refused: the address or token cannot be used; see `gepa_client.transport.address`.
    """

    def __init__(self, url: str, token: str | None, *, allow_insecure: bool = False) -> None:
        self.url = rpc_url(url, allow_insecure=allow_insecure)
        self.token = find_token(token)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=connector(self.url, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(
        self,
        body: bytes | AsyncIterator[bytes],
        *,
        timeout_s: float,
        verb: str = "POST",
        path: str | None = None,
        query: str | None = None,
        headers: Mapping[str, str | list[str] | None] | None = None,
    ) -> RawAnswer:
        """Send one request. `headers` are added to, or replace, the token and the content type; None leaves one out.

        A list of values sends the header once for each.

        Raises:
            NoAnswer: no complete answer within `timeout_s`.
        """
        if self._session is None:
            raise RuntimeError("the transport is not open")
        url = http_url(self.url)
        if path is not None:
            url = url.removesuffix("/rpc") + path
        sent = self._headers(headers or {})
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._session.request(
                    verb,
                    f"{url}?{query}" if query else url,
                    data=BytesIO(body) if isinstance(body, bytes) and body else body or None,
                    headers=sent,
                    skip_auto_headers=AUTOMATIC,
                    allow_redirects=False,
                )
                try:
                    read = await _read(response)
                finally:
                    response.close()
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {timeout_s:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise NotConnected(unconnected(self.url, error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(f"the connection was lost ({summary(error)})") from error
        return RawAnswer(
            status=response.status,
            headers={name.lower(): value for name, value in response.headers.items()},
            body=read,
            elapsed_s=time.monotonic() - started,
        )

    def _headers(self, changes: Mapping[str, str | list[str] | None]) -> CIMultiDict[str]:
        headers: dict[str, str | list[str] | None] = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        headers.update(changes)
        sent = CIMultiDict[str]()
        for name, value in headers.items():
            for one in value if isinstance(value, list) else () if value is None else (value,):
                sent.add(name, one)
        return sent


async def chunked(body: bytes) -> AsyncIterator[bytes]:
    """Yield the body in two pieces, so that its length is not declared."""
    half = len(body) // 2
    for piece in (body[:half], body[half:]):
        if piece:
            yield piece


async def withheld(body: bytes) -> AsyncIterator[bytes]:
    """Yield the body, then wait until it is cancelled."""
    yield body
    await asyncio.Event().wait()


async def endless(body: bytes, size: int) -> AsyncIterator[bytes]:
    """Yield the body, and blanks after it until `size` bytes have been sent."""
    yield body
    blanks = b" " * CHUNK_BYTES
    for _ in range(size // CHUNK_BYTES + 1):
        yield blanks


async def _read(response: aiohttp.ClientResponse) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise NoAnswer(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)
