"""Forward requests outside: add the key or the secret header, stream the answer back, report cost or connection."""

import asyncio
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urljoin

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from evolverpc_common.judged_http import environment_proxy, judged_connector
from evolverpc_common.model_prices import ModelPrice
from evolverpc_common.network_addresses import Network
from evolverpc_common.redaction import StreamRedactor
from sandbox_runtime.gateway.events import HostConnection, ProviderCall, Report
from sandbox_runtime.gateway.gateway_session import SandboxGatewaySession, failure
from sandbox_runtime.gateway.providers import HOP_HEADERS, Provider, SecretHeader
from sandbox_runtime.gateway.request_policy import ModelRequest
from sandbox_runtime.gateway.token_usage import JsonUsageReader, StreamUsageReader

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


def provider_session(allowed: Sequence[Network] | None = None) -> aiohttp.ClientSession:
    """Return the HTTP session for all calls of a gateway. `allowed`: as `Gateway.allowed_networks`."""
    return aiohttp.ClientSession(
        connector=judged_connector(allowed, limit=0, keepalive_timeout=KEPT_S),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent",),
    )


@dataclass
class UpstreamCall:
    """A call to forward. `path`: as requested. `query`: forwarded with it. `price`: None if unknown."""

    sandbox: str
    provider: Provider
    model_request: ModelRequest
    path: str
    query: str
    price: ModelPrice | None
    _started: float = field(default=0.0, init=False)
    _status: int | None = field(default=None, init=False)
    _sent: bool = field(default=True, init=False)
    _reader: JsonUsageReader | StreamUsageReader | None = field(default=None, init=False)

    async def forward(self, http: aiohttp.ClientSession, request: web.BaseRequest) -> web.StreamResponse:
        """Stream the provider's answer to the sandbox."""
        self._started = time.perf_counter()
        provider, model_request = self.provider, self.model_request
        url = provider.url(model_request.path) + (f"?{self.query}" if self.query else "")
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
            _log.debug("%s hung up on %s", self.sandbox, provider.name)
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
        self._reader = reader = (
            StreamUsageReader(self.provider.dialect, hide_usage=self.model_request.usage_added)
            if answer.content_type == "text/event-stream"
            else JsonUsageReader()
        )

        async def passed() -> AsyncIterator[bytes]:
            async for chunk in answer.content.iter_any():
                yield reader.feed(redactor.feed(chunk))
            yield reader.feed(redactor.rest())
            yield reader.rest()

        await _stream_to_sandbox(request, response, passed())

    def result(self, max_cost_usd: float) -> ProviderCall:
        """Return the finished call, to be reported. `max_cost_usd`: counted if its cost is unknown."""
        model_request = self.model_request
        tokens, whole = self._reader.tokens() if self._reader is not None else (None, False)
        cost: float | None = None
        if not self._sent or model_request.free or (self._status is not None and self._status >= 300):
            cost = 0.0  # providers charge for answers
        elif whole and tokens is not None and self.price is not None and model_request.unpriced is None:
            cost = self.price.cost(tokens)
        return ProviderCall(
            sandbox=self.sandbox,
            provider=self.provider.name,
            model=model_request.model,
            path=self.path,
            status=self._status,
            seconds=time.perf_counter() - self._started,
            tokens=tokens,
            cost_usd=cost,
            counted_usd=max_cost_usd if cost is None else cost,
            streamed=model_request.streamed,
        )


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PATH = re.compile(r"[/?][!\"$-~]*")
_DECODED = frozenset({"", "identity", "gzip", "deflate"})


@dataclass(frozen=True)
class HostRequests:
    """Forwards requests of all sandboxes to hosts with secret headers, and reports each to `report`."""

    headers: Sequence[SecretHeader]
    http: aiohttp.ClientSession
    tls: ssl.SSLContext | None
    report: Report

    async def answer(
        self, request: web.BaseRequest, session: SandboxGatewaySession, host: str, path: str
    ) -> web.StreamResponse:
        """Return the host's answer. `path`: from its first `/` or `?` on, as requested."""
        headers, what = [one for one in self.headers if one.host == host], f"{request.method} {host}"
        if not headers:
            session.refusals.add(what, "not among the hosts with a secret header (secret_headers)")
            return failure(403, "permission_error", "no secret header is set for this host")
        if request.method not in _METHODS or not _PATH.fullmatch(path):
            session.refusals.add(what, "a method or path that the gateway does not forward to hosts")
            return failure(405, "invalid_request_error", "the gateway does not forward this method or path to hosts")
        name, _, port = host.partition(":")
        forwarded = _HostRequest(headers, URL(f"{headers[0].scheme}://{host}{path}", encoded=True), self.tls)
        started = time.monotonic()
        try:
            return await forwarded.forward(self.http, request)
        finally:
            counts = (forwarded.sent, forwarded.received, time.monotonic() - started, forwarded.reached)
            self.report(HostConnection(session.sandbox, name, int(port or 443), *counts, request.method))


@dataclass
class _HostRequest:
    """One request, streamed in both directions. It ends if neither carries anything for `READ_TIMEOUT_S`."""

    headers: Sequence[SecretHeader]
    url: URL
    tls: ssl.SSLContext | None
    sent: int = 0
    received: int = 0
    reached: bool = False

    def __post_init__(self) -> None:
        self._redactor = StreamRedactor(*(one.secret for one in self.headers))

    async def forward(self, http: aiohttp.ClientSession, request: web.BaseRequest) -> web.StreamResponse:
        """Stream the host's answer to the sandbox."""
        response: web.StreamResponse | None = None
        try:
            async with asyncio.timeout(READ_TIMEOUT_S) as idle:
                if request.headers.get("Expect", "").lower() == "100-continue":
                    await _to_sandbox(continue_body(request))
                async with http.request(
                    *(request.method, self.url),
                    data=self._body(request, idle) if request.body_exists else None,
                    headers=self._sent_headers(request),
                    skip_auto_headers=("Content-Type", "Accept"),
                    allow_redirects=False,
                    proxy=_proxy(str(self.url)),
                    ssl=self.tls if self.tls is not None else True,
                ) as answer:
                    self.reached = True
                    if answer.headers.get("Content-Encoding", "").lower() not in _DECODED:
                        return failure(502, "api_error", "the host compressed its answer, which was not asked for")
                    response = web.StreamResponse(status=answer.status, headers=self._returned_headers(answer))
                    await _stream_to_sandbox(request, response, self._received(answer, idle))
                    return response
        except _ClientGone:
            return _disconnect(request, response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("host %s broke off, or was not reached: %s", self.url.authority, type(error).__name__)
            if response is not None and response.prepared:
                return _disconnect(request, response)
            broken = failure(502, "api_error", "the host broke off" if self.reached else "the host cannot be reached")
            broken.force_close()  # the rest of the request's body is not read
            return broken

    async def _body(self, request: web.BaseRequest, idle: asyncio.Timeout) -> AsyncIterator[bytes]:
        async for chunk in request.content.iter_any():
            _postpone(idle)
            self.sent += len(chunk)
            yield chunk

    async def _received(self, answer: aiohttp.ClientResponse, idle: asyncio.Timeout) -> AsyncIterator[bytes]:
        async for chunk in answer.content.iter_any():
            _postpone(idle)
            self.received += len(chunk)
            yield self._redactor.feed(chunk)
        yield self._redactor.rest()

    def _sent_headers(self, request: web.BaseRequest) -> CIMultiDict[str]:
        """Return the program's own headers, and in place of those with a secret, the gateway's."""
        left_out = _of_one_hop(request.headers) | {one.header.lower() for one in self.headers}
        left_out -= {"content-encoding"}
        found = CIMultiDict((name, text) for name, text in request.headers.items() if name.lower() not in left_out)
        if request.body_exists and request.content_length is not None:
            found["Content-Length"] = str(request.content_length)
        found["Accept-Encoding"] = "identity"  # so that the secret is found in the answer, if the host repeats it
        found.extend((one.header, one.value) for one in self.headers)
        return found

    def _returned_headers(self, answer: aiohttp.ClientResponse) -> CIMultiDict[str]:
        left_out = _of_one_hop(answer.headers) | {"set-cookie"}  # a cookie can stand for the secret
        found = CIMultiDict(
            (name, self._redactor.redact_text(text))
            for name, text in answer.headers.items()
            if name.lower() not in left_out
        )
        if location := answer.headers.get("Location"):  # relative to the host, not to the gateway
            found["Location"] = self._redactor.redact_text(urljoin(str(self.url), location))
        return found


def _postpone(idle: asyncio.Timeout) -> None:
    idle.reschedule(asyncio.get_running_loop().time() + READ_TIMEOUT_S)


def _of_one_hop(headers: Mapping[str, str]) -> set[str]:
    """Return the names of headers that are not forwarded: those of one connection, and those that it lists."""
    return {*HOP_HEADERS} | {name.strip().lower() for name in headers.get("Connection", "").split(",")}


async def continue_body(request: web.BaseRequest) -> None:
    """Answer `Expect: 100-continue`."""
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0


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


async def _stream_to_sandbox(
    request: web.BaseRequest, response: web.StreamResponse, content: AsyncIterator[bytes]
) -> None:
    await _to_sandbox(response.prepare(request))
    async for part in content:
        if part:
            await _to_sandbox(response.write(part))
    await _to_sandbox(response.write_eof())


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
    return environment_proxy(url) if url.startswith("https:") else None
