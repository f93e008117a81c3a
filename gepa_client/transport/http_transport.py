"""One HTTP request and its response, bounded in time and size: the one use of aiohttp's client for calls."""

import asyncio
import errno
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from gepa_client.errors import NO_ANSWER, AnswerTooLarge, ConnectionLost, Refused, summary
from gepa_client.transport.address import RPC_PATH, http_url, socket_of
from gepa_client.transport.responses import HttpResponse

CONNECT_TIMEOUT_S = 10.0

NOT_LISTENING = (errno.ECONNREFUSED, errno.ENOENT)

REFUSED = "connection refused. Is a server running, on this port?"

NO_LISTENER = "no process listens on this socket. Is a server running?"

PROXIED_TOKEN = "X-Gepa-Token"  # noqa: S105 - the name of a header, not a token
"""Carries the server's token if a proxy in front of it uses `Authorization`."""

KEEP_ALIVE_S = 4.0
"""Below the 5 s after which Node and uvicorn close an idle connection, so that no request meets the closing."""


def unconnected(url: str, error: Exception, within_s: float = CONNECT_TIMEOUT_S) -> str:
    """Return why there is no connection to `url`, as a sentence. `within_s`: seconds that were left to connect."""
    where = f"cannot connect to {url.removesuffix(RPC_PATH)}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"{where}: no such host"
    if not isinstance(error, aiohttp.ClientConnectorError):
        return f"{where}: no connection within {within_s:.3g} s"
    if _refused(error):
        return f"{where}: {REFUSED if socket_of(url) is None else NO_LISTENER}"
    return f"{where}: {error.os_error.strerror or error.os_error}"


def connector(url: str, **options: Any) -> aiohttp.BaseConnector:
    """Return a connector for an address from `rpc_url`, without a limit of its own; `options`: aiohttp's."""
    path = socket_of(url)
    if path is None:
        return aiohttp.TCPConnector(limit=0, **options)
    return aiohttp.UnixConnector(path, limit=0, **options)


def _refused(error: Exception) -> bool:
    """Whether no process listens; a socket's file may be removed with its process, or stay behind."""
    return isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno in NOT_LISTENING


def token_headers(token: str | None, proxy_token: str | None = None) -> dict[str, str]:
    """Return the headers with the tokens of a server and of a proxy in front of it."""
    if proxy_token is None:
        return {} if token is None else {"Authorization": f"Bearer {token}"}
    return {"Authorization": f"Bearer {proxy_token}"} | ({} if token is None else {PROXIED_TOKEN: token})


class _Body(aiohttp.BytesPayload):
    """The body of a request. `has_begun`: a part of the request was written to a connection: the server may have it."""

    has_begun = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self.has_begun = True
        await super().write_with_length(writer, content_length)


class HttpTransport:
    """Posts bodies to one address over one HTTP session; requests may overlap. `open` and `close` it."""

    def __init__(self, url: str, max_response_bytes: int) -> None:
        self._url = url
        self._http_url = http_url(url)
        self._bound = max_response_bytes
        self._headers = {"Content-Type": "application/json"}
        self._session: aiohttp.ClientSession | None = None
        self._cut: str | None = None

    def use_token(self, token: str | None, proxy_token: str | None) -> bool:
        """Send these tokens from now on; False if they are the same as before."""
        before = self._headers
        self._headers = {"Content-Type": "application/json"} | token_headers(token, proxy_token)
        return self._headers != before

    async def cut(self, why: str) -> None:
        """End every request in flight as a lost connection; further requests are refused in the same way."""
        self._cut = why
        await self.close()

    def open(self) -> None:
        """Open the session, inside the event loop that uses it; safe to call twice."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=connector(self._url, keepalive_timeout=KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),  # `post` has its own
            )

    async def close(self) -> None:
        """Close the session; safe to call twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, body: bytes, timeout_s: float) -> HttpResponse:
        """Send one request; return its response, with any status.

        Raises:
            ConnectionLost: no response, or none in time. AnswerTooLarge: it is larger than accepted.
            Refused: the client is not open, or the peer's certificate is not trusted.
        """
        if self._cut is not None:
            raise ConnectionLost(self._cut, sent=False, refused=True)
        if self._session is None:
            raise Refused("the client is not open: use `async with RpcClient(...)`")
        content = _Body(body)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.post(
                    self._http_url,
                    data=content,
                    headers=self._headers,
                    allow_redirects=False,
                ) as response,
            ):
                return HttpResponse(
                    status=response.status,
                    retry_after=response.headers.get("Retry-After", ""),
                    body=await bounded_body(response, self._bound),
                )
        except aiohttp.ClientSSLError as error:
            raise Refused(f"no trusted connection to {self._url}: {error}") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionLost(unconnected(self._url, error), sent=False, refused=_refused(error)) from error
        except TimeoutError as error:
            if not content.has_begun:
                raise ConnectionLost(unconnected(self._url, error, timeout_s), sent=False) from error
            raise ConnectionLost(f"{NO_ANSWER} {self._url} within {timeout_s:.3g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            if self._cut is not None:
                raise ConnectionLost(self._cut, sent=content.has_begun, refused=True) from error
            raise ConnectionLost(f"connection to {self._url} lost: {summary(error)}") from error


async def bounded_body(response: aiohttp.ClientResponse, bound: int) -> bytes:
    """Return the body of a response. Raises `AnswerTooLarge` if it has more bytes than `bound`."""
    if response.content_length is not None and response.content_length > bound:
        response.close()
        raise AnswerTooLarge(response.content_length, bound)
    chunks: list[bytes] = []
    size = 0
    while chunk := await response.content.readany():
        size += len(chunk)
        if size > bound:
            response.close()
            raise AnswerTooLarge(size, bound)
        chunks.append(chunk)
    return b"".join(chunks)
