"""Structured logs: a line of JSON for each event, with the request that it is about, its tenant and its work."""

import json
import logging
import re
import sys
import time
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gepa_service.api.audit_log import route_of

if TYPE_CHECKING:  # the dispatcher, which writes such lines too, measures no requests
    from gepa_service.api.metrics import Metrics

HEADER = "x-request-id"
GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
WORK = ("job_id", "step_id", "batch_id")
FORMAT = "%(levelname)s: %(message)s"
CHATTY = ("httpx", "httpcore")
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
