"""One HTTP request and its answer, bounded in time and size: where the calls of the product meet aiohttp's client."""

import errno

import aiohttp

from gepa_client.address import RPC_PATH
from gepa_client.answers import Exchange
from gepa_client.causes import summary
from gepa_client.errors import BadResponse, ConnectionLost, Refused

CONNECT_TIMEOUT_S = 10.0

REFUSED = "connection refused. Is a server running, on this port?"

KEEP_ALIVE_S = 4.0
"""Below the 5 s after which Node and uvicorn close an idle connection, so that no request races its closing."""


def unconnected(url: str, error: Exception) -> str:
    """Why there is no connection to `url`, as a sentence."""
    where = f"cannot connect to {url.removesuffix(RPC_PATH)}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"{where}: no such host"
    if not isinstance(error, aiohttp.ClientConnectorError):
        return f"{where}: no connection within {CONNECT_TIMEOUT_S:g} s"
    if _refused(error):
        return f"{where}: {REFUSED}"
    return f"{where}: {error.os_error.strerror or error.os_error}"


def _refused(error: Exception) -> bool:
    return isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.ECONNREFUSED


class Poster:
    """Posts bodies to one address over one HTTP session; requests may overlap. `open` and `close` it."""

    def __init__(self, url: str, token: str | None, max_response_bytes: int) -> None:
        self._url = url
        self._bound = max_response_bytes
        self._headers = {"Content-Type": "application/json"}
        self._session: aiohttp.ClientSession | None = None
        self.use_token(token)

    def use_token(self, token: str | None) -> bool:
        """Send this token from now on; False where it is the one that was sent already."""
        before = self._headers.pop("Authorization", None)
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        return self._headers.get("Authorization") != before

    def open(self) -> None:
        """Open the session, inside the event loop that uses it; safe to call twice."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            )

    async def close(self) -> None:
        """Close the session; safe to call twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, body: bytes, timeout_s: float) -> Exchange:
        """Send one request; its answer, whatever it is.

        Raises:
            ConnectionLost: no answer, or none in time. BadResponse: one larger than accepted.
            Refused: the client is not open, or the peer's certificate is not trusted.
        """
        if self._session is None:
            raise Refused("the client is not open: use `async with RpcClient(...)`")
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        try:
            async with self._session.post(
                self._url, data=body, headers=self._headers, timeout=timeout, allow_redirects=False
            ) as response:
                return Exchange(
                    status=response.status,
                    retry_after=response.headers.get("Retry-After", ""),
                    body=await self._bounded_body(response),
                )
        except aiohttp.ClientSSLError as error:
            raise Refused(f"no trusted connection to {self._url}: {error}") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionLost(unconnected(self._url, error), sent=False, refused=_refused(error)) from error
        except TimeoutError as error:
            raise ConnectionLost(f"no answer from {self._url} within {timeout_s:.3g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"connection to {self._url} lost: {summary(error)}") from error

    async def _bounded_body(self, response: aiohttp.ClientResponse) -> bytes:
        bound = self._bound
        if response.content_length is not None and response.content_length > bound:
            response.close()
            raise BadResponse(f"the answer has {response.content_length} bytes, more than the {bound} accepted")
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > bound:
                response.close()
                raise BadResponse(f"the answer has more than the {bound} bytes accepted")
            chunks.append(chunk)
        return b"".join(chunks)
