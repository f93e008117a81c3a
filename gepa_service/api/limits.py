"""Recognize the caller of a request before its body is read, and limit the requests of a tenant in a minute."""

import math
import time
from collections.abc import Callable, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from evolverpc_common.rate_limiter import RateExceeded, RateLimiter
from gepa_service.api.access import not_authenticated, recognized
from gepa_service.api.problems import Problem
from gepa_service.api.request_counts import RequestCounts
from gepa_service.api.route_table import permission_of
from gepa_service.jobs.tenant_quotas import quotas_of
from gepa_service.records.store import RecordStore

FRESH_S = 10.0
"""A changed quota holds after this."""


class RequestLimits:
    """Middleware. Each process of the API counts its own requests. Processes of work are not counted.

    `routes`: of the application; a request without a valid key to one that is not public ends here, its body unread.
    """

    def __init__(
        self,
        app: ASGIApp,
        records: RecordStore,
        counts: RequestCounts,
        routes: Sequence[Route],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._records = records
        self._counts = counts
        self._routes = routes
        self._clock = clock
        self._limiters: dict[str, tuple[float, int, RateLimiter]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        caller = await recognized(Request(scope))
        if caller is None:
            route = next((each for each in self._routes if each.matches(scope)[0] is Match.FULL), None)
            if route is not None and permission_of(route) is not None:
                raise not_authenticated()
        if caller is not None and not caller.is_process:
            await self._start(caller.tenant)
            self._counts.add(caller.tenant)
        await self._app(scope, receive, send)

    async def _start(self, tenant: str) -> None:
        """Raise a 429 problem if the tenant has made its requests of this minute."""
        made, count, limiter = self._limiters.get(tenant, (-math.inf, -1, RateLimiter(None)))
        if self._clock() - made >= FRESH_S:
            allowed = (await run_in_threadpool(quotas_of, self._records, tenant)).requests_per_minute
            if allowed != count:
                limiter = RateLimiter(allowed, clock=self._clock)
            count = allowed
            self._limiters[tenant] = (self._clock(), count, limiter)
        try:
            if count <= 0:
                raise RateExceeded(60.0)
            await limiter.wait(0.0)
        except RateExceeded as exceeded:
            seconds = max(1, math.ceil(exceeded.retry_after_s))
            raise Problem(
                429,
                "too-many-requests",
                "Too many requests",
                f"the tenant may make {count} requests a minute: send this again after {seconds} s",
                headers={"Retry-After": str(seconds)},
                quota="requests_per_minute",
            ) from None
