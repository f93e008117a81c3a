"""What each request is refused by: a wrong host, its length, the requests of its tenant; and headers for browsers."""

import math
import re
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evolverpc_common.network_addresses import is_loopback
from evolverpc_common.rate_limiter import RateExceeded, RateLimiter
from gepa_client.journal.http_messages import LARGEST_REQUEST
from gepa_service.api.access import not_authenticated, permission_of, recognized
from gepa_service.api.problems import Problem
from gepa_service.jobs.month_spending import add_usage, month_id, quotas_of
from gepa_service.model.tenant import Usage
from gepa_service.records import RecordStore, now

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
POLICY = "default-src 'none'; frame-ancestors 'none'"
"""Of responses that set no policy of their own."""

ALWAYS = ("/health", "/ready", "/metrics")
"""Asked for by the address of the machine."""

FRESH_S = 10.0
"""A changed quota holds after this."""

LARGEST_BODY = 32 << 20
"""Bytes; rows of a request are shorter."""

OF_PROCESSES = re.compile(r"/job/[^/]+/(journal|attempt)/[a-z_]+")
"""The paths whose bodies hold results of a program, up to `LARGEST_REQUEST`; all need a process's token."""


class Safety:
    """Middleware. `public_url`: the host of other requests is refused; empty: any host is accepted."""

    def __init__(self, app: ASGIApp, public_url: str) -> None:
        self._app = app
        parts = urllib.parse.urlsplit(public_url)
        self._host = (parts.hostname or "").lower()
        self._https = parts.scheme == "https"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Content-Security-Policy", POLICY)
                headers.setdefault("Cache-Control", "no-store")
                if self._https:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        if not self._is_ours(scope):
            problem = Problem(
                421, "wrong-host", "Wrong host", f"this service is reached as {self._host}: send the request there"
            )
            await problem.response()(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _is_ours(self, scope: Scope) -> bool:
        given = Headers(scope=scope).get("host", "")
        try:
            host = (urllib.parse.urlsplit(f"//{given}").hostname or "").lower()
        except ValueError:
            return False
        return not self._host or host == self._host or is_loopback(host) or scope["path"] in ALWAYS


class RequestCounts:
    """Counts of one process; what was counted since the last `write` is lost if it is killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, tenant: str) -> None:
        """Count a request."""
        with self._lock:
            self._counts[tenant, month_id(now())] += 1

    def of(self, tenant: str) -> int:
        """Return how many of this month are not written yet."""
        return self._counts[tenant, month_id(now())]

    def write(self, records: RecordStore) -> None:
        """Add the counts to the records. What cannot be written stays counted. Raises `RecordsUnavailable`."""
        with self._lock:
            left, self._counts = self._counts, Counter()
        try:
            for (tenant, month), count in tuple(left.items()):
                add_usage(records, Usage(tenant=tenant, id=month, requests=count))
                del left[tenant, month]
        finally:
            with self._lock:
                self._counts.update(left)


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


class BodyLimit:
    """Middleware that counts what is received. An honest length is refused before anything is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        largest = LARGEST_REQUEST if OF_PROCESSES.fullmatch(scope["path"]) else LARGEST_BODY
        if int(Headers(scope=scope).get("content-length", "0")) > largest:  # the server has refused what is no number
            raise HTTPException(413, headers={"Connection": "close"})
        left = largest

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, headers={"Connection": "close"})
            return message

        await self._app(scope, counted, send)
