"""A small correct server with every capability, and in it one place for each defect of `defects.py`.

It shares the contract's models and nothing else with the products: HTTP, envelope, calls and refs are its own.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from protocol import CAPABILITIES, METHODS, JsonValue
from protocol.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    LimitExceeded,
    MethodNotFound,
    ParseError,
    RpcError,
)
from tests.conformance.reference_calls import Calls
from tests.conformance.reference_commits import Commits
from tests.conformance.reference_http import TOKEN, HttpLayer
from tests.conformance.reference_methods import Methods
from tests.conformance.reference_params import LIMITS, ParamChecks, invalid

__all__ = ["TOKEN", "Reference"]

NEEDS = {"mutations": "commits"}
MAX_SAFE = 2**53 - 1
UNSET: Any = object()


async def continue_always(request: web.Request) -> None:
    """Ask for the body with any `Expect` header; an unknown expectation is refused later."""
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0


@dataclass
class Reference:
    """The server, listening while it is open with `async with`; `broken` names the one defect it has."""

    broken: str = ""
    without: frozenset[str] = frozenset()
    example_timeout_s: float = 30.0
    program_name: str = "conformance"
    url: str = ""

    def bad(self, defect: str) -> bool:
        """Whether this server has that defect."""
        return self.broken == defect

    async def __aenter__(self) -> Self:
        self.capabilities = frozenset(name for name in CAPABILITIES if not {name, NEEDS.get(name)} & self.without)
        commits = Commits(self.bad, offered="commits" in self.capabilities)
        self.http = HttpLayer(self.bad)
        self.params = ParamChecks(self.bad, self.capabilities, commits)
        self.methods = Methods(self.bad, self.capabilities, commits, self.program_name, self.example_timeout_s)
        self.calls = Calls(self.bad, lambda *call: self.start(self.methods.run(*call, keep=True)))
        self.work: set[asyncio.Task[Any]] = set()
        self.dead = False
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self.answer, expect_handler=continue_always)
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}/rpc"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self.work:
            task.cancel()
        await asyncio.gather(*self.work, return_exceptions=True)
        await self.runner.cleanup()

    def start(self, work: Coroutine[Any, Any, JsonValue]) -> "asyncio.Task[JsonValue]":
        """Run it as a task of the server's own."""
        task = asyncio.create_task(work)
        self.work.add(task)
        return task

    async def answer(self, request: web.Request) -> web.Response:
        if self.dead:
            return web.Response(status=500, text="Internal Server Error")
        try:
            return await self.answer_request(request)
        except asyncio.CancelledError:
            self.dead = self.bad("dies_of_disconnect")
            raise

    async def answer_request(self, request: web.Request) -> web.Response:
        refusal = self.http.refusal(request)
        if refusal is not None:
            if refusal.status == 401 and self.bad("runs_before_token"):
                await self.answer_message(self.http.read(await self.http.body(request)))
            return refusal
        if request.path == "/health":
            return web.json_response({"status": "ok"} | ({"program": "x"} if self.bad("talkative_health") else {}))
        try:
            body = await self.http.body(request)
        except LimitExceeded as error:
            return self.http.refuse(413, error)
        try:
            message = self.http.read(body)
        except (ParseError, InvalidRequest) as error:
            if self.bad("parse_error_is_500"):
                return web.Response(status=500, text="Traceback (most recent call last):")
            return self.http.refuse(400, error)
        except RecursionError:
            return web.Response(status=500, text="RecursionError")
        return await self.answer_message(message)

    async def answer_message(self, message: JsonValue) -> web.Response:
        if isinstance(message, list) and ("batch" in self.capabilities or self.bad("answers_unoffered")):
            return await self.answer_batch(message)
        if not isinstance(message, dict):
            error = ParseError() if self.bad("scalar_is_parse_error") else InvalidRequest()
            return self.http.respond(400, {"jsonrpc": "2.0", "id": None, "error": self.http.wire(error)})
        answer = await self.answer_one(message)
        if answer is None:
            return web.Response(status=200 if self.bad("notification_200") else 204)
        code = answer.get("error", {}).get("code")
        status = 400 if code == -32600 else 500 if code and self.bad("errors_are_500") else 200
        return self.http.respond(status, answer)

    async def answer_batch(self, entries: list[Any]) -> web.Response:
        if not entries:
            alone: Any = {"jsonrpc": "2.0", "id": None, "error": self.http.wire(InvalidRequest())}
            return self.http.respond(400, [] if self.bad("empty_array_for_empty_batch") else alone)
        if len(entries) > LIMITS["max_batch_entries"] and not self.bad("unbounded_batches"):
            error = LimitExceeded(limit="max_batch_entries", allowed=LIMITS["max_batch_entries"], given=len(entries))
            return self.http.respond(200, {"jsonrpc": "2.0", "id": None, "error": self.http.wire(error)})
        if self.bad("one_error_for_batch") and not all(isinstance(entry, dict) for entry in entries):
            return self.http.respond(400, {"jsonrpc": "2.0", "id": None, "error": self.http.wire(InvalidRequest())})
        if self.bad("batch_first_only"):
            entries = entries[:1]
        answers: list[Any] = list(await asyncio.gather(*(self.answer_one(entry) for entry in entries)))
        if not self.bad("nulls_for_notifications"):
            answers = [answer for answer in answers if answer is not None]
        if not answers and not self.bad("empty_array_for_notifications"):
            return web.Response(status=204)
        if self.bad("bad_batch_is_400") and all("error" in answer for answer in answers):
            return self.http.respond(400, answers)
        return self.http.respond(200, answers[0] if len(answers) == 1 and self.bad("unwraps_single") else answers)

    async def answer_one(self, message: JsonValue) -> dict[str, Any] | None:
        request_id = message.get("id", UNSET) if isinstance(message, dict) else None
        if request_id is None and self.bad("null_id_is_notification") and isinstance(message, dict):
            request_id = UNSET
        if isinstance(request_id, float) and request_id.is_integer():
            request_id = int(request_id)
        if request_id is UNSET and self.bad("notifications_ignored"):
            return None
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": None if request_id is UNSET else request_id}
        if self.bad("numeric_ids") and isinstance(request_id, str) and request_id.isdigit():
            answer["id"] = int(request_id)
        if self.bad("ids_as_text") and isinstance(request_id, int):
            answer["id"] = str(request_id)
        try:
            answer["result"] = await self.dispatch(*self.envelope(message))
        except InvalidRequest as error:
            return {"jsonrpc": "2.0", "id": None, "error": self.http.wire(error)}
        except RpcError as error:
            answer["error"] = self.http.wire(error)
        if request_id is not UNSET:
            return answer
        defect = "answers_failed_notifications" if "error" in answer else "answers_notifications"
        return answer if self.bad(defect) else None

    def envelope(self, message: JsonValue) -> tuple[str, JsonValue]:
        if not isinstance(message, dict):
            raise InvalidRequest
        if message.get("jsonrpc") != "2.0":
            overlooked = self.bad("jsonrpc_optional") if "jsonrpc" not in message else self.bad("any_jsonrpc")
            if not overlooked:
                raise InvalidRequest
        method = message.get("method", "discover" if self.bad("method_optional") else None)
        if not isinstance(method, str):
            raise MethodNotFound if self.bad("method_of_any_kind") else InvalidRequest
        request_id = message.get("id")
        if isinstance(request_id, bool | dict | list) and not self.bad("any_id"):
            raise InvalidRequest
        if isinstance(request_id, float) and request_id.is_integer() and self.bad("refuses_whole_ids"):
            raise InvalidRequest
        if isinstance(request_id, float) and not request_id.is_integer() and not self.bad("fractional_ids"):
            raise InvalidRequest
        if isinstance(request_id, int) and abs(request_id) > MAX_SAFE and not self.bad("unsafe_ids"):
            raise InvalidRequest
        if message.keys() - {"jsonrpc", "id", "method", "params"} and not self.bad("open_envelope"):
            raise InvalidRequest
        if "params" not in message and self.bad("params_required"):
            raise InvalidParams
        params = message.get("params", {})
        if isinstance(params, list):
            if not self.bad("positional_params"):
                raise InvalidParams if self.bad("positional_unexplained") else invalid("", "params go by name")
            params = dict(zip(("candidate", "batch", "capture_traces"), params, strict=False))
        if not isinstance(params, dict):
            if not self.bad("scalar_params"):
                raise InvalidRequest
            params = {}
        return method, params

    async def dispatch(self, method: str, params: dict[str, Any]) -> JsonValue:
        known = METHODS.get(method)
        if known is not None and known.capability is not None and known.capability not in self.capabilities:
            if self.bad("answers_unoffered"):
                return {}
            known = None
        if known is None:
            self.params.check_version(params)
            if self.bad("unknown_method_is_internal"):
                raise InternalError
            raise MethodNotFound if self.bad("unknown_method_unnamed") else MethodNotFound(method=method)
        meta: dict[str, Any] = params["_meta"] if isinstance(params.get("_meta"), dict) else {}
        call_id = meta.get("call_id")
        try:
            self.params.check(method, params)
        except RpcError as error:
            if self.bad("stores_refusals") and isinstance(call_id, str):
                raise self.calls.refused.setdefault(call_id, error) from error
            raise
        if isinstance(call_id, str) and "idempotency" in self.capabilities:
            if call_id in self.calls.refused:
                raise self.calls.refused[call_id]
            return await self.calls.identified(method, params, call_id, meta.get("wait_s"))
        if method in ("get_result", "cancel"):
            return await (self.calls.cancel(params) if method == "cancel" else self.calls.get_result(params))
        work = self.methods.run(method, params, {"done": 0, "total": 0, "results": {}}, keep=False)
        return await (asyncio.shield(self.start(work)) if self.bad("runs_on_after_disconnect") else work)
