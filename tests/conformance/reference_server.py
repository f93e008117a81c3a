"""A small correct server with every capability, and in it one place for each defect of `defects.py`.

It shares the contract's models and nothing else with the products: HTTP, envelope, calls and refs are its own.
"""

import asyncio
import hmac
import json
import re
import uuid
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from pydantic import ValidationError

from protocol import METHODS, DiscoverResult, JsonValue
from protocol.errors import (
    CallCancelled,
    CallIdConflict,
    CallNotFound,
    InternalError,
    InvalidParams,
    InvalidRequest,
    LimitExceeded,
    MethodNotFound,
    ParseError,
    ProgramFailed,
    RpcError,
    TrajectoryExpired,
    Unauthorized,
    UnknownCandidate,
    UnknownExample,
    VersionNotSupported,
)
from protocol.generate import openrpc
from tests.conformance.reference_program import ROWS, SEED, ReferenceProgram

TOKEN = "reference-token-0123456789"
CAPABILITIES = frozenset({"batch", "idempotency", "refs", "adapter_state"}) | frozenset(
    method.capability for method in METHODS.values() if method.capability not in (None, "mutations")
)
LIMITS = {"max_concurrency": 4, "max_batch_size": 200, "max_request_bytes": 4_000_000, "max_batch_entries": 10}
MAX_SAFE = 2**53 - 1
NESTING = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
UNSET: Any = object()

# The misfits of params that a defect overlooks: what their path and kind look like, as `path kind`.
OVERLOOKED = {
    "any_meta": r"^_meta ",
    "version_of_any_kind": r"^_meta\.protocol_version ",
    "any_call_id": r"^_meta\.call_id ",
    "negative_wait": r"wait_s ",
    "discover_takes_anything": r"^verbose ",
    "ignores_unknown_fields": r"^\w+ extra_forbidden",
    "ignores_nested_fields": r"[.\]]\w* extra_forbidden",
    "converts": r"^capture_traces ",
    "any_text": r"^candidate\.",
    "sourceless_examples": r"^batch\[\d+\] value_error",
    "any_example_id": r"^batch\[\d+\]\.id ",
    "any_result": r"^eval_batch\.results",
    "any_page": r"^(offset|limit) ",
    "any_dataset": r"^reflective_dataset",
    "any_run": r"^(run|best_score)",
}


@dataclass
class Call:
    """A call known by its `call_id`."""

    method: str
    params: Any
    task: "asyncio.Task[Any]"
    progress: dict[str, int]
    cancelled: bool = False


@dataclass
class Reference:
    """The server, listening while it is open with `async with`; `broken` names the one defect it has."""

    broken: str = ""
    without: frozenset[str] = frozenset()
    example_timeout_s: float = 30.0
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)
    url: str = ""

    def __post_init__(self) -> None:
        self.program = ReferenceProgram(self.bad)
        self.capabilities = CAPABILITIES - self.without
        self.calls: dict[Any, Call] = {}
        self.refused: dict[str, RpcError] = {}
        self.by_params: dict[str, Any] = {}
        self.traces: dict[str, Any] = {}
        self.groups: dict[str, list[str]] = {}
        self.work: set[asyncio.Task[Any]] = set()
        self.unreadable = 0
        self.state = 0

    def bad(self, defect: str) -> bool:
        """Whether this server has that defect."""
        return self.broken == defect

    async def __aenter__(self) -> Self:
        at_once = 1 if self.bad("one_at_a_time") else 10_000 if self.bad("unbounded_concurrency") else 4
        self.slots = asyncio.Semaphore(at_once)
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self.answer)
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

    # --- HTTP ----------------------------------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.Response:
        refusal = self.refusal(request)
        if refusal is not None:
            if refusal.status == 401 and self.bad("runs_before_token"):
                await self.answer_message(self.read(await self.body(request)))
            return refusal
        if request.path == "/health":
            return web.json_response({"status": "ok"} | ({"program": "x"} if self.bad("talkative_health") else {}))
        try:
            body = await self.body(request)
        except LimitExceeded as error:
            return self.refuse(413, error)
        if self.unreadable > 5 and self.bad("dies_of_bad_requests"):
            return web.Response(status=500, text="Internal Server Error")
        try:
            message = self.read(body)
        except (ParseError, InvalidRequest) as error:
            self.unreadable += 1
            if self.bad("parse_error_is_500"):
                return web.Response(status=500, text="Traceback (most recent call last):")
            return self.respond(400, {"jsonrpc": "2.0", "id": None, "error": self.wire(error)})
        except RecursionError:
            return web.Response(status=500, text="RecursionError")
        return await self.answer_message(message)

    def refusal(self, request: web.Request) -> web.Response | None:
        """The HTTP answer to a request that never gets as far as JSON-RPC."""
        checks = [self.wrong_host, self.wrong_origin, self.wrong_token, self.wrong_address]
        if self.bad("host_after_token"):
            checks = [self.wrong_token, self.wrong_host, self.wrong_origin, self.wrong_address]
        for check in checks:
            refused = check(request)
            if refused is not None:
                return refused
        return None

    def wrong_host(self, request: web.Request) -> web.Response | None:
        host = request.headers.get("Host", "")
        pattern = r"(localhost|127\.0\.0\.1|\[::1\])" + (".*" if self.bad("host_prefix") else r"(:\d+)?")
        if re.fullmatch(pattern, host) or self.bad("any_host"):
            return None
        if self.bad("host_after_token") and request.path == "/health":
            return None
        return self.refuse(403, Unauthorized(reason="host"))

    def wrong_origin(self, request: web.Request) -> web.Response | None:
        if "Origin" not in request.headers or self.bad("any_origin"):
            return None
        if request.method == "OPTIONS" and self.bad("cors_for_all"):
            return web.Response(status=204, headers={"Access-Control-Allow-Origin": "*"})
        return self.refuse(403, Unauthorized(reason="origin"))

    def wrong_token(self, request: web.Request) -> web.Response | None:
        if request.path == "/health" and not self.bad("health_needs_token"):
            return None
        header = request.headers.get("Authorization", "")
        scheme, _, given = header.partition(" ")
        right = scheme == "Bearer" and hmac.compare_digest(given.encode(), TOKEN.encode())
        lenient = {
            "optional_token": not header,
            "any_token": bool(header),
            "token_prefix": len(given) > 3 and TOKEN.startswith(given),
            "token_start": given.startswith(TOKEN),
            "any_scheme": header.split(" ")[-1] == TOKEN,
            "token_in_query": TOKEN in request.query_string,
        }
        if right or lenient.get(self.broken, False):
            return None
        challenge = {} if self.bad("no_challenge") else {"WWW-Authenticate": "Bearer"}
        error = Unauthorized(f"unknown token {given}" if self.bad("echoes_token") else None)
        return self.refuse(401, error, challenge)

    def wrong_address(self, request: web.Request) -> web.Response | None:
        if request.path == "/health":
            return None
        if request.path != "/rpc" and not self.bad("any_path"):
            return self.refuse(404, InvalidRequest("no such path"))
        if request.method != "POST" and not self.bad("any_verb"):
            return self.refuse(405, InvalidRequest("POST only"), {} if self.bad("no_allow") else {"Allow": "POST"})
        kind = request.headers.get("Content-Type", "")
        plain = kind if self.bad("exact_content_type") else kind.partition(";")[0].strip().lower()
        if plain != "application/json" and not self.bad("any_content_type"):
            return self.refuse(415, InvalidRequest("application/json only"))
        if request.content_length is None and self.bad("needs_length"):
            return self.refuse(411, InvalidRequest("length required"))
        return None

    async def body(self, request: web.Request) -> bytes:
        limit = 2**20 if self.bad("one_megabyte") else LIMITS["max_request_bytes"]
        stated = {} if self.bad("limit_unnamed") else {"limit": "max_request_bytes", "allowed": limit}
        declared = request.content_length or 0
        if declared > limit and not self.bad("reads_everything"):
            raise LimitExceeded(**stated)
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > limit and not self.bad("unbounded_chunks"):
                raise LimitExceeded(**stated)
            chunks.append(chunk)
        return b"".join(chunks)

    def read(self, body: bytes) -> JsonValue:
        if not body.strip() and self.bad("empty_is_invalid_request"):
            raise InvalidRequest
        if not self.bad("no_nesting_limit"):
            depth = 0
            for token in NESTING.finditer(body):
                depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token.group(), 0)
                if depth > (50 if self.bad("nesting_limit_50") else 200):
                    raise ParseError
        try:
            text = body.decode("utf-8", "replace" if self.bad("lenient_utf8") else "strict")
            if self.bad("reads_first_value"):
                return json.JSONDecoder().raw_decode(text)[0]
            return json.loads(text, parse_constant=None if self.bad("reads_nan") else self.no_constant)
        except ValueError as error:
            raise ParseError from error

    def no_constant(self, name: str) -> None:
        raise ValueError(name)

    def respond(self, status: int, message: JsonValue, headers: dict[str, str] | None = None) -> web.Response:
        text = json.dumps(message, sort_keys=self.bad("sorts_keys"))
        kind = "text/plain" if self.bad("answers_text_plain") else "application/json"
        return web.Response(status=status, text=text, content_type=kind, headers=headers)

    def refuse(self, status: int, error: RpcError, headers: dict[str, str] | None = None) -> web.Response:
        if self.bad("plain_refusals") and status not in (401, 403, 413):
            return web.Response(status=status, text="no", headers=headers)
        return self.respond(status, {"jsonrpc": "2.0", "id": None, "error": self.wire(error)}, headers)

    def wire(self, error: RpcError) -> dict[str, Any]:
        wire = error.to_wire()
        if self.bad("no_retryable"):
            del wire["data"]["retryable"]
        return wire

    # --- JSON-RPC --------------------------------------------------------------------------------------------------

    async def answer_message(self, message: JsonValue) -> web.Response:
        if isinstance(message, list) and ("batch" in self.capabilities or self.bad("answers_unoffered")):
            return await self.answer_batch(message)
        if not isinstance(message, dict):
            error = ParseError() if self.bad("scalar_is_parse_error") else InvalidRequest()
            return self.respond(400, {"jsonrpc": "2.0", "id": None, "error": self.wire(error)})
        answer = await self.answer_one(message)
        if answer is None:
            return web.Response(status=200 if self.bad("notification_200") else 204)
        code = answer.get("error", {}).get("code")
        status = 400 if code == -32600 else 500 if code and self.bad("errors_are_500") else 200
        return self.respond(status, answer)

    async def answer_batch(self, entries: list[Any]) -> web.Response:
        if not entries:
            alone: Any = {"jsonrpc": "2.0", "id": None, "error": self.wire(InvalidRequest())}
            return self.respond(400, [] if self.bad("empty_array_for_empty_batch") else alone)
        if len(entries) > LIMITS["max_batch_entries"] and not self.bad("unbounded_batches"):
            error = LimitExceeded(limit="max_batch_entries", allowed=LIMITS["max_batch_entries"], given=len(entries))
            return self.respond(200, {"jsonrpc": "2.0", "id": None, "error": self.wire(error)})
        if self.bad("one_error_for_batch") and not all(isinstance(entry, dict) for entry in entries):
            return self.respond(400, {"jsonrpc": "2.0", "id": None, "error": self.wire(InvalidRequest())})
        if self.bad("batch_first_only"):
            entries = entries[:1]
        answers = await asyncio.gather(*(self.answer_one(entry) for entry in entries))
        if not self.bad("nulls_for_notifications"):
            answers = [answer for answer in answers if answer is not None]
        if not answers and not self.bad("empty_array_for_notifications"):
            return web.Response(status=204)
        if self.bad("bad_batch_is_400") and all("error" in answer for answer in answers):
            return self.respond(400, answers)
        return self.respond(200, answers[0] if len(answers) == 1 and self.bad("unwraps_single") else answers)

    async def answer_one(self, message: JsonValue) -> dict[str, Any] | None:
        request_id = message.get("id", UNSET) if isinstance(message, dict) else None
        if request_id is None and self.bad("null_id_is_notification") and isinstance(message, dict):
            request_id = UNSET
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": None if request_id is UNSET else request_id}
        if self.bad("numeric_ids") and isinstance(request_id, str) and request_id.isdigit():
            answer["id"] = int(request_id)
        if self.bad("ids_as_text") and isinstance(request_id, int):
            answer["id"] = str(request_id)
        try:
            answer["result"] = await self.dispatch(*self.envelope(message))
        except InvalidRequest as error:
            return {"jsonrpc": "2.0", "id": None, "error": self.wire(error)}
        except RpcError as error:
            answer["error"] = self.wire(error)
        if request_id is not UNSET:
            return answer
        heard = "answers_failed_notifications" if "error" in answer else "answers_notifications"
        return answer if self.bad(heard) else None

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
        if isinstance(request_id, float) and not self.bad("fractional_ids"):
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
                raise InvalidParams("params go by name")
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
            if self.bad("unknown_method_is_internal"):
                raise InternalError
            raise MethodNotFound(**({} if self.bad("unknown_method_unnamed") else {"method": method}))
        meta = params.get("_meta")
        call_id = meta.get("call_id") if isinstance(meta, dict) else None
        try:
            self.check(method, params)
        except RpcError as error:
            if self.bad("stores_refusals") and isinstance(call_id, str):
                raise self.refused.setdefault(call_id, error) from error
            raise
        if isinstance(call_id, str) and "idempotency" in self.capabilities:
            if call_id in self.refused:
                raise self.refused[call_id]
            return await self.identified(method, params, call_id, meta.get("wait_s"))
        work = self.run(method, params, {"done": 0, "total": 0}, keep=False)
        return await (self.apart(work) if self.bad("runs_on_after_disconnect") else work)

    async def apart(self, work: Any) -> JsonValue:
        """Run it as a task of the server's, which no lost connection cancels."""
        task = asyncio.ensure_future(work)
        self.work.add(task)
        return await asyncio.shield(task)

    # --- params ----------------------------------------------------------------------------------------------------

    def check(self, method: str, params: dict[str, Any]) -> None:
        """Refuse what the contract refuses before anything runs."""
        self.check_fields(method, params)
        meta = params.get("_meta") if isinstance(params.get("_meta"), dict) else {}
        version = meta.get("protocol_version")
        strange = isinstance(version, str) and (version != "1" or self.bad("refuses_version_1"))
        if strange and not self.bad("ignores_version"):
            raise VersionNotSupported(supported=["1"], requested=version)
        if meta.get("wait_s") is not None and "call_id" not in meta and not self.bad("wait_without_call_id"):
            raise invalid("_meta.wait_s", "needs a call_id")
        if meta.keys() - {"protocol_version", "call_id", "wait_s", "group"} and self.bad("closed_meta"):
            raise invalid("_meta", "unknown key")
        for name in ("candidate", "best_candidate"):
            if isinstance(params.get(name), dict):
                params[name] = self.check_candidate(params[name], params.get("components_to_update", []))
        self.check_examples(method, params)

    def check_fields(self, method: str, params: dict[str, Any]) -> None:
        try:
            METHODS[method].params.model_validate(params)
        except ValidationError as error:
            misfits = [(dotted(misfit["loc"]), misfit["type"], misfit["msg"]) for misfit in error.errors()]
            overlooked = OVERLOOKED.get(self.broken)
            left = [m for m in misfits if overlooked is None or not re.search(overlooked, f"{m[0]} {m[1]}")]
            if left:
                named = not (self.bad("missing_unnamed") and left[0][1] == "missing")
                errors = [{"path": path, "message": message} for path, _, message in left]
                raise InvalidParams(errors=errors if named else []) from error
        results = (params.get("eval_batch") or {}).get("results", []) if method == "make_reflective_dataset" else []
        if self.bad("closed_results") and any("from_a_later_version" in result for result in results):
            raise invalid("eval_batch.results[0].from_a_later_version", "unknown field")
        if self.bad("nulls_refused") and any(result.get("feedback", "") is None for result in results):
            raise invalid("eval_batch.results[0].feedback", "not a string")

    def check_candidate(self, candidate: dict[str, str], asked: list[str]) -> dict[str, str]:
        if self.bad("fills_candidates_up"):
            candidate = SEED | candidate
        if self.bad("drops_extra_components"):
            candidate = {name: text for name, text in candidate.items() if name in SEED}
        unknown, missing = sorted(candidate.keys() - SEED), sorted(SEED.keys() - candidate)
        if (unknown or missing) and not self.bad("any_candidate"):
            raise UnknownCandidate(unknown=unknown, missing=missing)
        strange = [name for name in asked if name not in candidate]
        if strange and not self.bad("any_component"):
            raise UnknownCandidate(unknown=strange)
        return candidate

    def check_examples(self, method: str, params: dict[str, Any]) -> None:
        holder = params.get("eval_batch", params)
        batch = holder.get("batch") if isinstance(holder, dict) else None
        if not isinstance(batch, list):
            return
        if "results" in holder and len(batch) != len(holder["results"]) and not self.bad("uneven_batches"):
            raise InvalidParams("batch and results differ in length")
        limit = LIMITS["max_batch_size"] - (1 if self.bad("off_by_one") else 0)
        if len(batch) > limit and not self.bad("unbounded_batch_size"):
            raise LimitExceeded(limit="max_batch_size", allowed=LIMITS["max_batch_size"], given=len(batch))
        if not batch and method == "evaluate" and self.bad("refuses_empty"):
            raise invalid("batch", "is empty")
        held = [example for example in batch if isinstance(example, dict) and "split" in example]
        if held and len(held) < len(batch) and self.bad("one_source_per_batch"):
            raise invalid("batch", "one source for all")
        if held and method == "make_reflective_dataset" and self.bad("held_rows_unreflected"):
            raise invalid("eval_batch.batch[0].data", "missing")
        for split in {example["split"] for example in held}:
            ids = [example["id"] for example in held if example["split"] == split]
            rows = self.rows(split) or []
            unknown = [i for i in ids if i not in map(str, range(len(rows)))]
            if unknown and self.bad("unknown_split_is_invalid") and not rows:
                raise invalid("batch[0].split", "unknown")
            if unknown:
                raise UnknownExample(split=split, ids=unknown[:1] if self.bad("first_unknown_only") else unknown)
        if self.bad("null_is_no_data") and any(example.get("data", 0) is None for example in batch):
            raise invalid("batch[0].data", "missing")

    def rows(self, split: str) -> list[dict[str, Any]] | None:
        return ROWS.get(split) if "datasets" in self.capabilities else None

    def data(self, example: dict[str, Any]) -> JsonValue:
        if "split" not in example or "data" in example:
            return example.get("data")
        rows = ROWS[example["split"]]
        return rows[(int(example["id"]) + self.bad("rows_shifted")) % len(rows)]

    # --- calls that outlive their connection -------------------------------------------------------------------------

    async def identified(self, method: str, params: dict[str, Any], call_id: str, wait_s: float | None) -> JsonValue:
        key: Any = (call_id, method) if self.bad("call_ids_per_method") else call_id
        compared = {name: value for name, value in params.items() if name != "_meta" or self.bad("meta_counts")}
        if self.bad("text_of_params"):
            compared = {"text": json.dumps(compared)}
        alike = json.dumps([method, compared], sort_keys=True)
        if self.bad("caches_by_params") and alike in self.by_params:
            key = self.by_params[alike]
        call = self.calls.get(key)
        if call is not None and call.task.done() and self.bad("forgets_answers"):
            call = None
        if call is not None and not call.task.done() and self.bad("no_joining"):
            call = None
        if call is not None and not call.task.done() and self.bad("asked_again_restarts"):
            call.task.cancel()
            call = None
        if call is None:
            progress = {"done": 0, "total": len(params["batch"]) if method == "evaluate" else 1}
            task = asyncio.create_task(self.run(method, params, progress, keep=True))
            self.work.add(task)
            call = self.calls[key] = Call(method, compared, task, progress)
            self.by_params[alike] = key
        elif (call.method, call.params) != (method, compared) and not self.bad("ignores_params"):
            raise CallIdConflict
        return await self.waited(call, call_id, None if self.bad("ignores_wait") else wait_s)

    async def waited(self, call: Call, call_id: str, wait_s: float | None) -> JsonValue:
        if self.bad("always_pending") and wait_s:
            await asyncio.sleep(0.2)
        try:
            await asyncio.wait([call.task], timeout=wait_s)
        except asyncio.CancelledError:
            if self.bad("dies_with_connection"):
                call.task.cancel()
                self.calls = {key: other for key, other in self.calls.items() if other is not call}
            raise
        if not call.task.done() or (self.bad("always_pending") and wait_s):
            return {"pending": {"call_id": call_id, "progress": call.progress | self.no_progress()}}
        if call.cancelled and self.bad("cancel_raises"):
            raise CallCancelled
        return call.task.result()

    def no_progress(self) -> dict[str, int]:
        return {"done": 0} if self.bad("no_progress") else {}

    async def get_result(self, params: dict[str, Any]) -> JsonValue:
        call_id = params["call_id"]
        if call_id in self.refused:
            raise self.refused[call_id]
        call = self.calls.get(call_id)
        if call is None:
            if self.bad("unknown_is_pending"):
                return {"pending": {"call_id": call_id, "progress": {"done": 0, "total": 1}}}
            raise CallNotFound
        answer = await self.waited(call, call_id, params.get("wait_s", 0.0))
        if call.task.done() and self.bad("collects_once"):
            del self.calls[call_id]
        return answer

    async def cancel(self, params: dict[str, Any]) -> JsonValue:
        call = self.calls.get(params["call_id"])
        if call is None:
            if self.bad("cancels_anything"):
                return {"status": "finished"}
            raise CallNotFound
        if call.task.done():
            return {"status": "cancelled" if self.bad("cancels_the_finished") else "finished"}
        for other in self.calls.values() if self.bad("cancels_all") else [call]:
            other.cancelled = True
            if not self.bad("cancel_unheard"):
                other.task.cancel()
        if self.bad("forgets_cancelled"):
            del self.calls[params["call_id"]]
        return {"status": "cancelled"}

    # --- methods ---------------------------------------------------------------------------------------------------

    async def run(self, method: str, params: dict[str, Any], progress: dict[str, int], *, keep: bool) -> JsonValue:
        if method == "evaluate":
            return {"results": await self.evaluate(params, progress, keep=keep)}
        work = {
            "discover": self.discover,
            "make_reflective_dataset": self.make_reflective_dataset,
            "get_result": self.get_result,
            "cancel": self.cancel,
            "list_examples": self.list_examples,
            "propose_new_texts": self.propose_new_texts,
            "score": self.score,
            "finalize": self.finalize,
            "rpc.discover": self.rpc_discover,
        }[method]
        return await work(params)

    async def discover(self, _params: dict[str, Any]) -> JsonValue:
        names = ["system"] if self.bad("component_unlisted") else list(SEED)
        answer = {
            "protocol_versions": ["1"],
            "server": {
                "name": "reference",
                "version": "1",
                "language": "python",
                "instance_id": uuid.uuid4().hex if self.bad("new_instance_each_time") else self.instance,
            },
            "program": {
                "name": "conformance",
                "version": "1",
                "components": [{"name": name, "kind": "text"} for name in names],
                "seed_candidate": SEED | ({"style": "seed"} if self.bad("other_seed") else {}),
            },
            "datasets": {
                split: {"size": len(rows), "digest": "same" if self.bad("same_digest") else split}
                for split, rows in ROWS.items()
                if "datasets" in self.capabilities
            },
            "capabilities": sorted(self.capabilities),
            "limits": {**LIMITS, "example_timeout_s": self.example_timeout_s},
        }
        DiscoverResult.model_validate(answer)
        if self.bad("no_limits"):
            del answer["limits"]
        return answer

    async def evaluate(self, params: dict[str, Any], progress: dict[str, int], *, keep: bool) -> list[Any]:
        batch = params["batch"]
        results: list[Any] = [None] * len(batch)
        finished: list[Any] = []
        slots = asyncio.Semaphore(4) if self.bad("concurrency_per_call") else self.slots
        queued = asyncio.get_running_loop().time()

        async def one(position: int, example: dict[str, Any]) -> None:
            async with slots:
                began = queued if self.bad("queue_counts") else asyncio.get_running_loop().time()
                try:
                    async with asyncio.timeout_at(began + self.example_timeout_s):
                        result = await self.program.run(params["candidate"], self.data(example))
                except TimeoutError:
                    kind = "TimeoutError" if self.bad("timeout_untyped") else "timeout"
                    result = {"status": "timeout", "score": None, "output": None, "seconds": self.example_timeout_s}
                    result["error"] = {"type": kind, "message": "over its deadline"}
                    if self.bad("timeout_scores_zero"):
                        result |= {"status": "ok", "score": 0.0}
            results[position] = result
            finished.append(result)
            progress["done"] += 1

        tasks = [asyncio.create_task(one(position, example)) for position, example in enumerate(batch)]
        try:
            await asyncio.gather(*tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if not keep:
                raise
            stopped = {"status": "cancelled", "score": None, "output": None, "seconds": 0.0}
            drop = self.bad("cancel_drops_results")
            results = [dict(stopped) if result is None or drop else result for result in results]
        results = finished if self.bad("finishing_order") else results
        return self.shaped(results, params)

    def shaped(self, results: list[Any], params: dict[str, Any]) -> list[Any]:
        """Results as they go out: trajectories inline, by ref, or left out."""
        failures = [result["status"] == "program_error" for result in results]
        if any(failures) and (self.bad("one_failure_fails_all") or (all(failures) and self.bad("all_failed_is_error"))):
            raise ProgramFailed(stage="evaluate")
        if self.bad("by_id"):
            last = {example["id"]: result for example, result in zip(params["batch"], results, strict=True)}
            results = [last[example["id"]] for example in params["batch"]]
        if self.bad("stops_at_100"):
            results = results[:100]
        wanted = params.get("capture_traces", False) or self.bad("always_traces")
        group = (params.get("_meta") or {}).get("group")
        if any(failures) and self.bad("failure_drops_traces"):
            wanted = False
        by_ref = group is not None and "refs" in self.capabilities and not self.bad("inline_anyway")
        if group is not None and self.bad("group_hides_traces"):
            wanted = False
        if by_ref and self.bad("group_of_last_call"):
            for ref in self.groups.pop(group, []):
                del self.traces[ref]
        trajectories = [result.get("trajectory") for result in results]
        if self.bad("traces_mixed"):
            trajectories.reverse()
        shaped = []
        for example, result, trajectory in zip(params["batch"], results, trajectories, strict=False):
            out = {name: value for name, value in result.items() if name != "trajectory"}
            if self.bad("no_null_outputs") and out.get("output") is None:
                out.pop("output", None)
            if self.bad("drops_nulls"):
                out["output"] = without_nulls(out.get("output"))
            if by_ref and (wanted or self.bad("refs_without_traces")) and trajectory is not None:
                out["trajectory_ref"] = self.keep(trajectory, group, example["id"])
            elif wanted and trajectory is not None:
                out["trajectory"] = trajectory
            shaped.append(out)
        return shaped

    def keep(self, trajectory: JsonValue, group: str, example_id: str) -> str:
        name = example_id if self.bad("refs_by_example") else uuid.uuid4().hex
        ref = name if self.bad("bare_refs") else f"{self.instance}/{name}"
        self.traces[ref] = trajectory
        self.groups.setdefault(group, []).append(ref)
        return ref

    async def make_reflective_dataset(self, params: dict[str, Any]) -> JsonValue:
        given = params["eval_batch"]
        refs = [result.get("trajectory_ref") for result in given["results"]]
        gone = [ref for ref in refs if ref is not None and ref not in self.traces]
        if gone and not self.bad("any_ref"):
            raise TrajectoryExpired(refs=[ref for ref in refs if ref] if self.bad("names_all_refs") else gone)
        results = [
            {**result, "trajectory": self.traces.get(ref)}
            if ref is not None and not self.bad("refs_unread")
            else result
            for result, ref in zip(given["results"], refs, strict=False)
        ]
        batch = [self.data(example) for example in given["batch"]][: len(results)]
        dataset = self.program.records(batch, results[: len(batch)], params["components_to_update"])
        self.state += 1
        state = {} if self.bad("stateless") else {"adapter_state": {"calls": self.state}}
        return {"dataset": dataset, **(state if "adapter_state" in self.capabilities else {})}

    async def list_examples(self, params: dict[str, Any]) -> JsonValue:
        split = params["split"]
        rows = self.rows(split)
        if rows is None and not self.bad("unknown_split_is_empty"):
            raise UnknownExample(split=split, ids=[])
        listed = [{"id": str(at), "split": split, "data": row} for at, row in enumerate(rows or [])]
        if self.bad("lists_backwards"):
            listed.reverse()
        offset = 0 if self.bad("ignores_offset") else params.get("offset", 0)
        return {"examples": listed[offset : offset + params.get("limit", 100)], "total": len(listed)}

    async def propose_new_texts(self, params: dict[str, Any]) -> JsonValue:
        source = SEED if self.bad("proposes_from_seed") else params["candidate"]
        names = SEED if self.bad("proposes_all") else params["components_to_update"]
        return {"texts": {name: source.get(name, "") + "!" for name in names}}

    async def score(self, params: dict[str, Any]) -> JsonValue:
        results = []
        for example, result in zip(params["batch"], params["results"], strict=False):
            waits = result["status"] == "rollout" or self.bad("scores_failures")
            scored = self.program.score(self.data(example)) if waits else {}
            if scored.get("status") == "program_error" and self.bad("bad_scores_are_zero"):
                scored = {"status": "ok", "score": 0.0}
            results.append({**result, **scored})
        return {"results": results[::-1] if self.bad("scores_reversed") else results}

    async def finalize(self, _params: dict[str, Any]) -> JsonValue:
        return {} if self.bad("silent_finalize") else {"message": "done"}

    async def rpc_discover(self, _params: dict[str, Any]) -> JsonValue:
        return openrpc() | ({"methods": []} if self.bad("empty_openrpc") else {})


def invalid(path: str, message: str) -> InvalidParams:
    """An `InvalidParams` that names one path."""
    return InvalidParams(errors=[{"path": path, "message": message}])


def dotted(location: tuple[int | str, ...]) -> str:
    """A location of pydantic's as the contract writes paths."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def without_nulls(value: JsonValue) -> JsonValue:
    """The value with every key that holds null left out."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value
