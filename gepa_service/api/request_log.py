"""Structured logs, a line of JSON for each event with its request, tenant and work; and the audit log of writes."""

import json
import logging
import re
import sys
import time
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gepa_service.api.access import recognized
from gepa_service.model.tenant import AuditEntry
from gepa_service.records import RecordStore, new_id

if TYPE_CHECKING:  # the dispatcher, which writes such lines too, measures no requests
    from gepa_service.api.routes.health import Metrics

HEADER = "x-request-id"
GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
WORK = ("job_id", "step_id", "batch_id")
FORMAT = "%(levelname)s: %(message)s"
CHATTY = ("httpx", "httpcore")
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
LONGEST_PATH = 500
_request: ContextVar[Scope | None] = ContextVar("request", default=None)
_log = logging.getLogger(__name__)


class RequestLog:
    """Middleware that names each request, by its header `X-Request-ID` if given, logs and measures its response."""

    def __init__(self, app: ASGIApp, metrics: "Metrics") -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":  # the start and the end of the application, which concern no other middleware
            await scope["app"].router(scope, receive, send)
            return
        given, began = Headers(scope=scope).get(HEADER, ""), time.monotonic()
        name = given if GIVEN.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = name

        async def logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = name
                route, seconds = route_of(scope), time.monotonic() - began
                self._metrics.answered(scope["method"], route, message["status"], seconds)
                fields = {"status": message["status"], "seconds": round(seconds, 4)}
                _log.info("%s %s", scope["method"], route, extra={"fields": fields})
            await send(message)

        token = _request.set(scope)
        try:
            with self._metrics.open.track_inprogress():
                await self._app(scope, receive, logged)
        finally:
            _request.reset(token)


class JsonLines(logging.Formatter):
    """Formats records as JSON: `at`, `level`, `part`, `logger`, `message`, and `request`, `tenant`, `work` if known."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "part": self._part}
        found |= {
            "logger": record.name,
            "message": record.getMessage(),
            **_of_request(),
            **record.__dict__.get("fields", {}),
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return json.dumps(found)


def _of_request() -> dict[str, str]:
    scope = _request.get()
    if scope is None:
        return {}
    found = {"request": scope["state"]["request_id"]}
    if (caller := scope["state"].get("principal")) is not None:
        found["tenant"] = caller.tenant
    work = next((value for name, value in scope.get("path_params", {}).items() if name in WORK), None)
    return found if work is None else {**found, "work": work}


def configure_logs(part: str, level: int) -> None:
    """Log to stderr: lines of JSON, or text for people if that is a terminal. `part`: which part of the service."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{part}: {FORMAT}") if sys.stderr.isatty() else JsonLines(part))
    logging.basicConfig(level=level, handlers=[handler])
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


class Audit:
    """Middleware. What processes of work send is not recorded here: it is a record. Bodies never are."""

    def __init__(self, app: ASGIApp, records: RecordStore) -> None:
        self._app = app
        self._records = records

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        caller = await recognized(Request(scope)) if scope["method"] in WRITES else None
        if caller is None or caller.is_process:
            await self._app(scope, receive, send)
            return
        entry = AuditEntry(
            tenant=caller.tenant,
            id=new_id("audit"),
            actor=caller.actor,
            action=scope["method"],
            resource=scope["path"][:LONGEST_PATH],
            status=0,
        )
        await run_in_threadpool(self._records.insert, entry)

        async def recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                action = f"{entry.action} {route_of(scope)}"
                ended = entry.model_copy(update={"action": action, "status": message["status"]})
                await run_in_threadpool(self._records.replace, ended)
            await send(message)

        await self._app(scope, receive, recorded)


def route_of(scope: Scope) -> str:
    """Return the path of the route that answers a request, as it was declared: `/job/{job_id}`."""
    return str(getattr(scope.get("route"), "path", "unknown"))
