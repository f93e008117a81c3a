"""Answer model requests: check each request of a sandbox before anything is sent to a provider."""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from evolverpc_common.model_prices import ModelPrice, PriceTable
from evolverpc_common.rate_limiter import RateExceeded, RateLimiter
from sandbox_runtime.gateway.events import Report, shown
from sandbox_runtime.gateway.gateway_session import BODIES, SandboxGatewaySession, failure
from sandbox_runtime.gateway.providers import PATHS, Provider
from sandbox_runtime.gateway.request_policy import (
    RATE_WAIT_S,
    GatewayPolicy,
    ModelRequest,
    UnusableRequest,
    parse_request,
)
from sandbox_runtime.gateway.spend_cap import SpendCap
from sandbox_runtime.gateway.upstream import UpstreamCall, continue_body

BODY = 32 * 2**20
"""Bytes of one request."""

PARTS = 200_000
"""Number of `[`, `{` and `,` in one request: the cost of parsing grows with them more than with its bytes."""

BODY_S = 120.0
"""Seconds within which the body of a request must arrive."""

# As it stands on the wire: nothing that is decoded, joined or shortened later can mean another path.
_PATH = re.compile(r"/(?P<provider>[a-z0-9-]+)/v1(?P<path>(/[a-z_]+)+)(\?(?P<query>[A-Za-z0-9=&._-]*))?")
_QUERIES = frozenset({"beta", "api-version"})


class _RequestRefused(Exception):
    """The gateway answers by itself. `reason`: reported as a refusal of `what`."""

    def __init__(self, response: web.Response, what: str, reason: str) -> None:
        super().__init__(reason)
        self.response = response
        self.what = what
        self.reason = reason


@dataclass(eq=False)
class ModelRequests:
    """Answers the model requests of all sandboxes of a gateway, once `released` is set."""

    providers: Sequence[Provider]
    policy: GatewayPolicy
    spend: SpendCap
    http: aiohttp.ClientSession
    report: Report
    released: asyncio.Event

    def __post_init__(self) -> None:
        self._prices = PriceTable(self.policy.prices)
        self._rate = RateLimiter(self.policy.calls_per_minute)

    async def answer(self, request: web.BaseRequest, session: SandboxGatewaySession) -> web.StreamResponse:
        """Return the provider's response to a request, or the reason why it was not forwarded."""
        await self.released.wait()
        try:
            provider, path, query = self._route(request)
            async with _body(request, session) as content:
                try:
                    asked = parse_request(provider, path, content)
                except UnusableRequest as error:
                    what = f"{provider.name}{path}"
                    raise _refused(400, "invalid_request_error", what, str(error)) from None
                content.clear()  # the answer may take long
                price = self._check(provider, asked, session)
                max_cost_usd = self._most(provider, asked, price)
                where = request.raw_path.partition("?")[0]
                call = UpstreamCall(session.sandbox, provider, asked, where, query, price)
                async with self.spend.charge(max_cost_usd) as charge:
                    await self._rate.wait(RATE_WAIT_S)
                    try:
                        return await call.forward(self.http, request)
                    finally:
                        result = call.result(max_cost_usd)
                        charge.counted_usd = result.counted_usd
                        self.report(result)
        except _RequestRefused as refused:
            session.refusals.add(refused.what, refused.reason)
            return refused.response
        except RateExceeded as fast:
            session.refusals.add("a model", "more calls per minute than are allowed")
            headers = {"Retry-After": str(math.ceil(fast.retry_after_s))}
            return failure(429, "rate_limit_error", "more calls per minute than this run may make", headers)

    def _route(self, request: web.BaseRequest) -> tuple[Provider, str, str]:
        match = _PATH.fullmatch(request.raw_path)
        provider = next((each for each in self.providers if match and each.name == match["provider"]), None)
        what = f"{request.method} {request.raw_path.partition('?')[0]}"
        if (
            match is None
            or provider is None
            or request.method != "POST"
            or match["path"] not in PATHS[provider.dialect]
        ):
            raise _refused(404, "not_found_error", what, "this is not among what the gateway passes on")
        query = match["query"] or ""
        if query and not {part.partition("=")[0] for part in query.split("&")} <= _QUERIES:
            raise _refused(400, "invalid_request_error", what, "the query holds what the gateway does not pass on")
        return provider, match["path"], query

    def _check(self, provider: Provider, asked: ModelRequest, session: SandboxGatewaySession) -> ModelPrice | None:
        """Return the model's price, once the call is known to be allowed."""
        what = f"{provider.name}/{asked.model}"
        if not self.policy.allows(provider.name, asked.model):
            raise _refused(403, "permission_error", what, "this model is not among those that the run may call")
        if not session.open_to_all and (reached := asked.reaches):
            reason = f"the provider would reach hosts for the sandbox ({shown(reached)}), beside its egress"
            raise _refused(403, "permission_error", what, reason)
        price = self._prices.of(provider.name, asked.model)
        if self.spend.cap_usd is not None and not asked.free:
            if price is None:
                reason = (
                    "the run has a spend cap and this model no known price: give one in `model_prices`, "
                    "in US dollars per million tokens of input and of output"
                )
                raise _refused(403, "permission_error", what, reason)
            if more := asked.unpriced:
                reason = f"the run has a spend cap, and what this costs is not known: {shown(more)}"
                raise _refused(403, "permission_error", what, reason)
        return price

    def _most(self, provider: Provider, asked: ModelRequest, price: ModelPrice | None) -> float:
        """Return the most that the call can cost, in US dollars."""
        max_cost_usd = asked.max_cost_usd(price) if price is not None else 0.0
        if self.spend.beyond(max_cost_usd):
            reason = (
                "this call alone might cost more than the run's entire spend cap: ask for fewer tokens (`max_tokens`), "
                "fewer answers or less input, or raise the cap"
            )
            raise _refused(403, "permission_error", f"{provider.name}/{asked.model}", reason)
        return max_cost_usd


@asynccontextmanager
async def _body(request: web.BaseRequest, session: SandboxGatewaySession) -> AsyncIterator[bytearray]:
    """Yield the body, whose bytes count as held for the sandbox until the end of the block."""
    what = f"{request.method} {request.raw_path.partition('?')[0]}"
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _refused(415, "invalid_request_error", what, "a compressed body is not read")
    if request.headers.get("Expect", "").lower() == "100-continue":
        await continue_body(request)
    content, size = bytearray(), 0
    try:
        try:
            async with asyncio.timeout(BODY_S):
                async for chunk in request.content.iter_any():
                    content += chunk
                    size += len(chunk)
                    session.held_bytes += len(chunk)
                    if size > BODY:
                        raise _refused(413, "request_too_large", what, f"its body is larger than {BODY} bytes")
                    if session.held_bytes > BODIES:
                        raise _refused(429, "rate_limit_error", what, f"more than {BODIES} bytes of requests at once")
        except TimeoutError:
            raise _refused(408, "invalid_request_error", what, "its body did not arrive in time") from None
        if sum(map(content.count, (b"[", b"{", b","))) > PARTS:
            raise _refused(413, "request_too_large", what, f"its body has more than {PARTS} parts")
        yield content
    finally:
        session.held_bytes -= size


def _refused(status: int, kind: str, what: str, reason: str) -> _RequestRefused:
    response = failure(status, kind, reason)
    if status in {408, 413, 415, 429}:
        response.force_close()  # the rest of its body is not read
    return _RequestRefused(response, what, reason)
