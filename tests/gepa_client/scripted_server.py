"""A compact server of the contract whose behaviour a test scripts, on real sockets."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from aiohttp import web
from pydantic import ValidationError

from gepa_client import Row
from protocol import METHODS, DiscoverResult, EvaluateParams, EvaluateResult, Example
from protocol.errors import CallNotFound, InvalidParams, MethodNotFound, RpcError, TrajectoryExpired
from tests.support.loops import cancel_others

TOKEN = "token-of-the-tests"


def rows(count: int, first: int = 0) -> list[Row]:
    """Rows that hold their number as `n`."""
    return [Row(str(number), {"n": number}) for number in range(first, first + count)]


def ok(score: float = 1.0, output: Any = None, **more: Any) -> dict[str, Any]:
    return {"status": "ok", "score": score, "output": output, "seconds": 0.001, **more}


def failed(status: str = "program_error", kind: str = "ValueError", message: str = "no", **more: Any) -> dict[str, Any]:
    error = {"type": kind, "message": message}
    return {"status": status, "score": None, "output": None, "seconds": 0.001, "error": error, **more}


def chat_completion(model: str, text: str, finish_reason: str = "stop") -> web.Response:
    """The answer of a language model over OpenAI's interface."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    head = {"id": "1", "object": "chat.completion", "created": 1, "model": model}
    return web.json_response({**head, "choices": [choice], "usage": usage})


class AtOnce:
    """Wraps what answers a server's calls; `most`: how many of them ran at the same time. Each waits for a moment."""

    def __init__(self) -> None:
        self.running = self.most = 0

    def __call__(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*given: Any) -> Any:
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await asyncio.sleep(0.02)
                reply = answer(*given)
                return await reply if isinstance(reply, Awaitable) else reply
            finally:
                self.running -= 1

        return counted


Behaviour = Callable[[dict[str, str], Example, bool], dict[str, Any] | Awaitable[dict[str, Any]]]


class ScriptedServer:
    """Answers the contract; `evaluate_one` decides each example, `replies` overrides whole methods.

    `runs` counts how often an example really ran, `calls` holds each (method, params) that arrived.
    """

    ok = staticmethod(ok)
    failed = staticmethod(failed)

    def __init__(self) -> None:
        self.evaluate_one: Behaviour = lambda *_: ok()
        self.capabilities = ["idempotency", "async", "cancel", "refs", "proposals", "finalize", "datasets"]
        self.limits = {"max_concurrency": 8, "max_batch_size": 100, "max_request_bytes": 2**24}
        self.makes_records = True
        self.seed_candidate = {"system": "seed system", "style": "seed style"}
        self.instance_id = "first"
        self.name = "scripted"  # the program's
        self.version: str | None = None  # the program's
        self.digest: str | None = "scripted"  # the program's: those of our servers with one digest are not compared
        self.server = {"name": "evolverpc", "version": "0", "language": "python"}
        self.token = TOKEN
        self.proxy_token: str | None = None  # of the proxy in front of it
        self.keeps_alive = True  # otherwise each request has a connection of its own
        self.cuts = 0  # how many answers of `evaluate` and `get_result` are lost on their way
        self.rows = {"val": [{"n": number} for number in range(5)]}
        self.replies: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.refusals: deque[RpcError] = deque()  # raised before anything runs, one per evaluate
        self.runs: Counter[str] = Counter()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.most_at_once = 0
        self.traces: dict[str, Any] = {}
        self.cancelled: list[str] = []
        self.url = ""
        self._running = 0
        self._kept: dict[str, asyncio.Task[Any]] = {}

    def called(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.calls if name == method]

    def forget(self, instance_id: str) -> None:
        """As after a restart: another instance, with none of the old one's calls and traces."""
        self.instance_id = instance_id
        self.traces.clear()
        self._kept.clear()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        message = orjson.loads(await request.read())
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            if self.proxy_token is not None and request.headers.get("Authorization") != f"Bearer {self.proxy_token}":
                return web.Response(status=403, text="Forbidden")
            own = request.headers.get("X-Gepa-Token") if self.proxy_token is not None else None
            if (f"Bearer {own}" if own else request.headers.get("Authorization")) != f"Bearer {self.token}":
                return web.json_response(status=401)
            answer["result"] = await self.answer(message["method"], message["params"])
        except RpcError as error:
            answer["error"] = error.to_wire()
        if self.cuts and message["method"] in ("evaluate", "get_result"):
            self.cuts -= 1
            assert request.transport is not None
            request.transport.close()
        response = web.Response(body=orjson.dumps(answer), content_type="application/json")
        if not self.keeps_alive:
            response.force_close()
        return response

    async def answer(self, method: str, params: dict[str, Any]) -> Any:
        self.calls.append((method, params))
        if method not in METHODS:
            raise MethodNotFound(method=method)
        try:
            METHODS[method].params.model_validate(params)
        except ValidationError as error:
            raise InvalidParams(str(error)) from error
        meta = params.get("_meta", {})
        call_id = meta.get("call_id")
        if method == "get_result" and method not in self.replies:
            call_id, meta = params["call_id"], params
            if call_id not in self._kept:
                raise CallNotFound
        elif method == "evaluate" and self.refusals and call_id not in self._kept:
            raise self.refusals.popleft()
        if call_id is None:
            return await self.run(method, params)
        if call_id not in self._kept:
            self._kept[call_id] = asyncio.create_task(self.run(method, params))
        task = self._kept[call_id]
        done, _ = await asyncio.wait([task], timeout=meta.get("wait_s"))
        if not done:
            return {"pending": {"call_id": call_id, "progress": {"done": 0, "total": 1}}}
        return task.result()

    async def run(self, method: str, params: dict[str, Any]) -> Any:
        if method in self.replies:
            reply = self.replies[method](params)
            return await reply if isinstance(reply, Awaitable) else reply
        return await getattr(self, method)(params)

    async def discover(self, _params: dict[str, Any]) -> dict[str, Any]:
        names = list(self.seed_candidate)
        return DiscoverResult.model_validate(
            {
                "protocol_versions": ["1"],
                "server": self.server | {"instance_id": self.instance_id},
                "program": {
                    "name": self.name,
                    "version": self.version,
                    "digest": self.digest,
                    "components": [{"name": name} for name in names],
                    "seed_candidate": self.seed_candidate,
                },
                "datasets": {name: {"size": len(rows), "digest": "d"} for name, rows in self.rows.items()},
                "capabilities": [*self.capabilities, *(["reflective_datasets"] if self.makes_records else [])],
                "limits": self.limits,
            }
        ).model_dump(exclude_none=True)

    async def evaluate(self, params: dict[str, Any]) -> dict[str, Any]:
        wanted = EvaluateParams.model_validate(params)
        self._running += len(wanted.batch)
        self.most_at_once = max(self.most_at_once, self._running)
        try:
            results = await asyncio.gather(*(self._one(wanted, example) for example in wanted.batch))
        finally:
            self._running -= len(wanted.batch)
        EvaluateResult.model_validate({"results": results})
        return {"results": results}

    async def _one(self, wanted: EvaluateParams, example: Example) -> dict[str, Any]:
        self.runs[example.id] += 1
        decided = self.evaluate_one(wanted.candidate, example, wanted.capture_traces)
        result = dict(await decided if isinstance(decided, Awaitable) else decided)
        if wanted.capture_traces and wanted.meta is not None and wanted.meta.group is not None:
            ref = f"{self.instance_id}/{len(self.traces)}"
            self.traces[ref] = (wanted.meta.group, example.id)
            result["trajectory_ref"] = ref
        elif wanted.capture_traces:
            result.setdefault("trajectory", {"of": example.id})
        return result

    async def get_traces(self, params: dict[str, Any]) -> dict[str, Any]:
        if gone := [ref for ref in params["refs"] if ref not in self.traces]:
            raise TrajectoryExpired(refs=gone)
        return {"traces": [{"trajectory": {"of": self.traces[ref][1]}} for ref in params["refs"]]}

    async def make_reflective_dataset(self, params: dict[str, Any]) -> dict[str, Any]:
        results = params["eval_batch"]["results"]
        await self.get_traces({"refs": [result["trajectory_ref"] for result in results if "trajectory_ref" in result]})
        records = [
            {"Inputs": example.get("data"), "Generated Outputs": result["output"], "Feedback": f"{result['score']}"}
            for example, result in zip(params["eval_batch"]["batch"], results, strict=True)
        ]
        return {"dataset": dict.fromkeys(params["components_to_update"], records)}

    async def propose_new_texts(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"texts": {name: params["candidate"][name] + "!" for name in params["components_to_update"]}}

    async def list_examples(self, params: dict[str, Any]) -> dict[str, Any]:
        rows, start = self.rows[params["split"]], params.get("offset", 0)
        page = list(enumerate(rows))[start : start + params.get("limit", 100)]
        listed = [{"id": str(at), "split": params["split"], "data": row} for at, row in page]
        return {"examples": listed, "total": len(rows)}

    async def finalize(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"message": f"done at {params['best_score']:g}"}

    async def cancel(self, params: dict[str, Any]) -> dict[str, Any]:
        self.cancelled.append(params["call_id"])
        if params["call_id"] not in self._kept:
            raise CallNotFound
        self._kept[params["call_id"]].cancel()
        return {"status": "cancelled"}


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Host:
    """Runs handlers on one background loop, as the code under test blocks the test's own thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.runners: list[web.AppRunner] = []

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def serve(self, handler: Handler, path: str = "/rpc", port: int = 0) -> str:
        return str(self.run(self._serve(handler, path, port)))

    def stop(self, url: str) -> None:
        """Close every connection of what is served there, and listen no more; `serve` takes the same port again."""
        runner = next(runner for runner in self.runners if _place(runner) in url)
        self.runners.remove(runner)
        self.run(runner.cleanup())

    def serve_on_socket(self, handler: Handler, socket: Path) -> str:
        """The same where only this machine's processes come."""
        return str(self.run(self._serve(handler, "/rpc", 0, socket)))

    async def _serve(self, handler: Handler, path: str, port: int, socket: Path | None = None) -> str:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", path, handler)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site: web.BaseSite = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
        if socket is not None:
            site = web.UnixSite(runner, socket)
        await site.start()
        self.runners.append(runner)
        return f"http{'' if socket is None else '+unix'}://{_place(runner)}{path}"

    def close(self) -> None:
        async def stop() -> None:
            servers = [runner.server for runner in self.runners if runner.server is not None]
            for runner in self.runners:
                await runner.cleanup()
            await cancel_others()
            for server in servers:
                await server.shutdown(0)  # connections that were accepted while it was cleaned up

        self.run(stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()


def _place(runner: web.AppRunner) -> str:
    address = runner.addresses[0]
    return quote(address, safe="") if isinstance(address, str) else f"127.0.0.1:{address[1]}"
