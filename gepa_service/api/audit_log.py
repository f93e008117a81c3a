"""Record each write of a caller: begun before it is carried out, with its status before it is answered."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gepa_service.api.access import recognized
from gepa_service.model.tenant import AuditEntry
from gepa_service.records import RecordStore, new_id

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
LONGEST = 500


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
            resource=scope["path"][:LONGEST],
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
