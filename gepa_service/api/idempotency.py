"""Answer a repeated write with the response of the first: those with the same `Idempotency-Key` of the same caller.

See draft-ietf-httpapi-idempotency-key-header. A write that was refused may be sent again with the same key: it changed
nothing.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gepa_client.journal.database import Compared
from gepa_service.api.access import recognized
from gepa_service.api.problems import Problem
from gepa_service.api.request_log import WRITES
from gepa_service.auth.permissions import Principal
from gepa_service.model.tenant import IdempotentResponse
from gepa_service.records import RecordChanged, RecordError, RecordExists, RecordStore, changed, now

_log = logging.getLogger(__name__)

HEADER = "idempotency-key"
REPLAYED = "Idempotent-Replayed"
SHOWN_ONCE = "shown_once"
LONGEST_KEY = 200
KEPT = timedelta(hours=24)
BEAT_S = 10.0
SILENT = timedelta(seconds=60)
"""A first request whose record was not renewed for so long was cut off: the next one is carried out."""

LARGEST_BODY = 4 << 20
KEPT_HEADERS = ("content-type", "location", "link")


class Idempotency:
    """Middleware."""

    def __init__(self, app: ASGIApp, records: RecordStore) -> None:
        self._app = app
        self._records = records

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        key = Headers(scope=scope).get(HEADER) if scope["method"] in WRITES else None
        caller = None if key is None else await recognized(Request(scope))
        if key is None or caller is None or caller.is_process:
            await self._app(scope, receive, send)
            return
        if not 0 < len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable():
            detail = f"give 1 to {LONGEST_KEY} visible ASCII characters, such as a UUID"
            raise Problem(422, "invalid", "Field not valid", detail, field="Idempotency-Key")
        body = await _body(receive)
        record = _record(caller, key, scope, body)
        found = await run_in_threadpool(self._begun, record)
        if found is not None:
            await _replay(found, record)(scope, receive, send)
            return
        async with self._renewed(record):
            await self._carried_out(record, scope, _again(body, receive), send)

    def _begun(self, record: IdempotentResponse) -> IdempotentResponse | None:
        """Write the record of a request that begins; return the one that is there instead."""
        while True:
            try:
                self._records.insert(record)
            except RecordExists:
                found = self._records.get(IdempotentResponse, record.tenant, record.id)
                if found is None:
                    continue
                expired = found.created <= now() - KEPT
                cut_off = found.status is None and found.updated <= now() - SILENT
                if not expired and not (cut_off and found.digest == record.digest):
                    return found
                with contextlib.suppress(RecordChanged):  # by another that took it over at the same time
                    self._records.replace(record.model_copy(update={"version": found.version}))
                    return None
                continue
            return None

    @contextlib.asynccontextmanager
    async def _renewed(self, record: IdempotentResponse) -> AsyncIterator[None]:
        """Show that the request is being answered, until it is."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(BEAT_S)
                try:
                    await run_in_threadpool(changed, self._records, record, lambda each: each.model_copy())
                except RecordError as error:
                    _log.warning("the record of an idempotent request is not renewed: %s", error)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _carried_out(self, record: IdempotentResponse, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request be answered; keep the response before it is sent."""
        messages: list[Message] = []

        async def held(message: Message) -> None:
            messages.append(message)

        try:
            await self._app(scope, receive, held)
            await run_in_threadpool(self._keep, record, messages, once=scope["state"].get(SHOWN_ONCE, False))
        except BaseException:
            await run_in_threadpool(self._forget, record)
            raise
        for message in messages:
            await send(message)

    def _keep(self, record: IdempotentResponse, messages: list[Message], *, once: bool) -> None:
        status = int(messages[0]["status"])
        body = b"".join(message.get("body", b"") for message in messages[1:])
        if status >= 400 or len(body) > LARGEST_BODY:
            self._forget(record)
            return
        headers = Headers(raw=messages[0]["headers"])
        kept = {name: headers[name] for name in KEPT_HEADERS if name in headers}
        update = {"status": 409} if once else {"status": status, "headers": kept, "body": body.decode()}
        changed(self._records, record, lambda found: found.model_copy(update=update))

    def _forget(self, record: IdempotentResponse) -> None:
        found = self._records.get(IdempotentResponse, record.tenant, record.id)
        if found is not None and found.digest == record.digest:
            self._records.remove(IdempotentResponse, record.tenant, id_=record.id)


def shown_once(request: Request) -> None:
    """Mark a response as one that holds a secret: it is not kept, and a repeated request is refused."""
    request.scope["state"][SHOWN_ONCE] = True


def remove_old(records: RecordStore) -> int:
    """Remove the responses that are older than a day; return how many. Raises `RecordsUnavailable`."""
    return records.remove(IdempotentResponse, None, {"hour": Compared("<", _hour(now() - KEPT))})


def _hour(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H}"


def _record(caller: Principal, key: str, scope: Scope, body: bytes) -> IdempotentResponse:
    place = [caller.tenant, caller.actor, scope["method"], scope["path"], key]
    request = [scope.get("query_string", b""), Headers(scope=scope).get("content-type", "").encode(), body]
    return IdempotentResponse(
        tenant=caller.tenant,
        id=f"idem_{_digest(part.encode('utf-8', 'surrogatepass') for part in place)[:48]}",
        digest=_digest(request),
        hour=_hour(now()),
    )


def _digest(parts: Iterable[bytes]) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(len(part).to_bytes(8, "big") + part)
    return made.hexdigest()


def _replay(found: IdempotentResponse, record: IdempotentResponse) -> Response:
    """Return the response that is kept. Raises a problem if there is none for this request."""
    if found.digest != record.digest:
        detail = "the key was sent before with another request: choose a new one for each write"
        raise Problem(422, "key-reused", "Idempotency key used before", detail, field="Idempotency-Key")
    if found.status is None:
        detail = "the first request with this key is still being carried out: send this again in a second"
        raise Problem(409, "in-progress", "In progress", detail, field="Idempotency-Key", headers={"Retry-After": "1"})
    if found.status == 409:
        detail = "the first request with this key was carried out; its response held a secret and is shown once"
        raise Problem(409, "shown-once", "Shown once", detail, field="Idempotency-Key")
    return Response(found.body, found.status, headers={**found.headers, REPLAYED: "true"})


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(400)
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what delivers a body that was received already."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return left.pop() if left else await receive()

    return received
