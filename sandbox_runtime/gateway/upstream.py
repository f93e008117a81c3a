"""Forward one call to a provider: add the key, stream the answer back, report the cost."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import web

from evolverpc_common.model_prices import ModelPrice
from evolverpc_common.redaction import StreamRedactor
from sandbox_runtime.gateway.events import ProviderCall
from sandbox_runtime.gateway.http_frontend import failure
from sandbox_runtime.gateway.providers import Provider
from sandbox_runtime.gateway.request_parsing import ModelRequest
from sandbox_runtime.gateway.usage import JsonUsageReader, StreamUsageReader

CONNECT_S = 30.0
READ_TIMEOUT_S = 900.0
"""How long a provider may send nothing: models may think before their first byte."""

WRITE_TIMEOUT_S = 300.0
"""How long a sandbox may read nothing of its answer: meanwhile the most that the call may cost is reserved."""

KEPT_S = 15.0
"""How long an unused connection to a provider is kept: shorter than providers do, so that none closes while in use."""

# What goes to the provider of the sandbox's own headers, and comes back of the provider's: nothing else.
_REQUEST_HEADERS = ("Accept", "User-Agent", "anthropic-version", "anthropic-beta", "OpenAI-Beta", "Idempotency-Key")
_RESPONSE_HEADERS = frozenset(
    {"content-type", "retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id"}
    | {"openai-processing-ms", "openai-version", "openai-model"}
)
_RESPONSE_HEADER_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")

_log = logging.getLogger(__name__)


class _ClientGone(Exception):
    """The sandbox disconnected."""


def provider_session() -> aiohttp.ClientSession:
    """Return the HTTP session for all calls of a gateway."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_S),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent",),
    )


class UpstreamCall:
    """A call to forward. `path`: as requested. `query`: forwarded with it. `price`: None if unknown."""

    def __init__(
        self,
        sandbox: str,
        provider: Provider,
        model_request: ModelRequest,
        path: str,
        query: str,
        price: ModelPrice | None,
    ) -> None:
        self._sandbox = sandbox
        self._provider = provider
        self._model_request = model_request
        self._path = path
        self._query = query
        self._price = price
        self._started = 0.0
        self._status: int | None = None
        self._sent = True
        self._reader: JsonUsageReader | StreamUsageReader | None = None

    async def forward(self, http: aiohttp.ClientSession, request: web.BaseRequest) -> web.StreamResponse:
        """Stream the provider's answer to the sandbox."""
        self._started = time.perf_counter()
        provider, model_request = self._provider, self._model_request
        url = provider.url(model_request.path) + (f"?{self._query}" if self._query else "")
        headers = {name: value for name in _REQUEST_HEADERS if (value := request.headers.get(name)) and value.isascii()}
        headers |= {"Content-Type": "application/json", "Accept-Encoding": "identity", **provider.key_headers()}
        response: web.StreamResponse | None = None
        try:
            async with http.post(
                url, data=model_request.take(), headers=headers, allow_redirects=False, proxy=_proxy(url)
            ) as answer:
                self._status = answer.status
                if 300 <= answer.status < 400:
                    return failure(502, "api_error", "the provider answered with a redirect, which is not followed")
                redactor = StreamRedactor(provider.key)
                response = web.StreamResponse(status=answer.status, headers=_response_headers(answer.headers, redactor))
                await self._stream(request, response, answer, redactor)
                return response
        except _ClientGone:
            _log.debug("%s hung up on %s", self._sandbox, provider.name)
            return _disconnect(request, response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            self._sent = False
            _log.warning("provider %s cannot be reached: %s", provider.name, type(error).__name__)
            return failure(502, "api_error", "the provider cannot be reached")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("provider %s broke off: %s", provider.name, type(error).__name__)
            if response is not None and response.prepared:
                return _disconnect(request, response)
            return failure(502, "api_error", "the provider broke off")

    async def _stream(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        answer: aiohttp.ClientResponse,
        redactor: StreamRedactor,
    ) -> None:
        events = answer.content_type == "text/event-stream"
        model_request = self._model_request
        self._reader = reader = (
            StreamUsageReader(self._provider.dialect, hide_usage=model_request.usage_added)
            if events
            else JsonUsageReader()
        )
        await _to_sandbox(response.prepare(request))
        async for chunk in answer.content.iter_any():
            if passed := reader.feed(redactor.feed(chunk)):
                await _to_sandbox(response.write(passed))
        last = reader.feed(redactor.rest()) + (reader.rest() if isinstance(reader, StreamUsageReader) else b"")
        if last:
            await _to_sandbox(response.write(last))
        await _to_sandbox(response.write_eof())

    def result(self, max_cost_usd: float) -> ProviderCall:
        """Return the finished call, to be reported. `max_cost_usd`: counted if its cost is unknown."""
        model_request = self._model_request
        tokens, whole = self._reader.tokens() if self._reader is not None else (None, False)
        cost: float | None = None
        if not self._sent or model_request.free or (self._status is not None and self._status >= 300):
            cost = 0.0  # providers charge for answers
        elif whole and tokens is not None and self._price is not None and model_request.unpriced is None:
            cost = self._price.cost(tokens)
        return ProviderCall(
            sandbox=self._sandbox,
            provider=self._provider.name,
            model=model_request.model,
            path=self._path,
            status=self._status,
            seconds=time.perf_counter() - self._started,
            tokens=tokens,
            cost_usd=cost,
            counted_usd=max_cost_usd if cost is None else cost,
            streamed=model_request.streamed,
        )


async def _to_sandbox(writing: Awaitable[object]) -> None:
    """Await a write to the sandbox, whose failure is not the provider's.

    Raises:
        _ClientGone: the sandbox disconnected, or reads nothing.
    """
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await writing
    except (ConnectionError, TimeoutError):
        raise _ClientGone from None


def _disconnect(request: web.BaseRequest, response: web.StreamResponse | None) -> web.StreamResponse:
    """Close the connection within the answer, so that the part is not mistaken for the whole."""
    if request.transport is not None:
        request.transport.close()
    return response if response is not None else web.Response(status=502)


def _response_headers(headers: Mapping[str, str], redactor: StreamRedactor) -> dict[str, str]:
    return {
        name: redactor.redact_text(value)
        for name, value in headers.items()
        if name.lower() in _RESPONSE_HEADERS or name.lower().startswith(_RESPONSE_HEADER_PREFIXES)
    }


def _proxy(url: str) -> str | None:
    """Return this machine's proxy for a URL. Never for `http`, because the proxy would see the key."""
    parts = urlsplit(url)
    if parts.scheme != "https" or proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get("https")
