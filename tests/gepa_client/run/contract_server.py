"""A scripted server of the contract: a program that learns words, and every way a server can disappoint."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TOKEN = "a-token-of-the-test"
WORDS = ("red", "green", "blue", "pink", "grey", "teal")


def rows(count: int, first: int = 0) -> list[dict[str, str]]:
    """Rows that each need one word in the candidate's text, the words in turn; `text` makes each row its own."""
    return [{"text": f"row {at}", "need": WORDS[at % len(WORDS)]} for at in range(first, first + count)]


@dataclass
class Script:
    """What the server does. `seen` are the requests, by method."""

    seed: dict[str, str] = field(default_factory=lambda: {"rules": ""})
    datasets: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ("proposals", "finalize", "datasets")
    max_concurrency: int = 8
    delay_s: float = 0.0
    evaluate: Callable[[dict[str, Any], dict[str, str]], dict[str, Any]] | None = None
    propose: Callable[[dict[str, Any]], Any] | None = None
    reflect: Callable[[dict[str, Any]], Any] | None = None
    finalize: Callable[[dict[str, Any]], Any] | None = None
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def calls(self, method: str) -> list[dict[str, Any]]:
        """The params of every call of a method so far."""
        return [params for name, params in list(self.seen) if name == method]


class ScriptedError(Exception):
    """An error for the wire: `code`, message, `data`."""

    def __init__(self, code: int, text: str, **data: Any) -> None:
        super().__init__(text)
        self.wire = {"code": code, "message": text, "data": {"retryable": False, **data}}


class Hang(Exception):
    """Never answer."""


def scored(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
    """1 when any component holds the word the row needs."""
    found = any(data["need"] in text.split() for text in candidate.values())
    return {
        "status": "ok",
        "score": 1.0 if found else 0.0,
        "output": f"{data['need']} {'found' if found else 'missing'}",
        "feedback": f"needs {data['need']}",
        "seconds": 0.001,
        "trajectory": {"need": data["need"]},
    }


def records(params: dict[str, Any]) -> dict[str, Any]:
    """One record per traced example, for every component asked for."""
    feedback = [
        {"Feedback": result["feedback"]} for result in params["eval_batch"]["results"] if result.get("feedback")
    ]
    return {"dataset": dict.fromkeys(params["components_to_update"], feedback)}


def proposed(params: dict[str, Any]) -> dict[str, Any]:
    """Each component's text with the first word its records ask for."""
    texts = {}
    for component in params["components_to_update"]:
        known = params["candidate"][component].split()
        wanted = [record["Feedback"].split()[-1] for record in params["reflective_dataset"][component]]
        fresh = [word for word in wanted if word not in known]
        texts[component] = " ".join(known + fresh[:1])
    return {"texts": texts}


class ContractServer:
    def __init__(self, script: Script) -> None:
        self.script = script

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/rpc", self.rpc)
        app.router.add_post("/v1/chat/completions", self.complete)
        return app

    async def rpc(self, request: web.Request) -> web.Response:
        message = await request.json()
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            answer["error"] = {"code": -32021, "message": "Unauthorized", "data": {"retryable": False}}
            return web.json_response(answer, status=401)
        params = message.get("params", {})
        self.script.seen.append((message["method"], params))
        try:
            answer["result"] = await self.answer(message["method"], params)
        except ScriptedError as error:
            answer["error"] = error.wire
        except Hang:
            await asyncio.sleep(3600)
        return web.json_response(answer)

    async def complete(self, request: web.Request) -> web.Response:
        """A language model: it answers with every word of the task that its prompt holds."""
        body = await request.json()
        prompt = body["messages"][0]["content"]
        self.script.seen.append(("complete", body))
        text = f"Here it is:\n```\n{' '.join(word for word in WORDS if word in prompt)}\n```"
        return web.json_response(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10},
            }
        )

    async def answer(self, method: str, params: dict[str, Any]) -> Any:
        script = self.script
        match method:
            case "discover":
                return self.discover()
            case "evaluate":
                await asyncio.sleep(script.delay_s)
                evaluate = script.evaluate or scored
                results = [evaluate(self.data(example), params["candidate"]) for example in params["batch"]]
                if not params.get("capture_traces"):
                    results = [{key: result[key] for key in result if key != "trajectory"} for result in results]
                return {"results": results}
            case "make_reflective_dataset":
                return (script.reflect or records)(params)
            case "propose_new_texts" if "proposals" in script.capabilities:
                return (script.propose or proposed)(params)
            case "list_examples" if "datasets" in script.capabilities:
                return self.listed(params)
            case "finalize" if "finalize" in script.capabilities:
                return script.finalize(params) if script.finalize else {"message": "thank you"}
            case _:
                raise ScriptedError(-32601, "Method not found", method=method)

    def data(self, example: dict[str, Any]) -> dict[str, Any]:
        if "data" in example:
            return dict(example["data"])
        return self.script.datasets[example["split"]][int(example["id"])]

    def listed(self, params: dict[str, Any]) -> dict[str, Any]:
        split = self.script.datasets[params["split"]]
        start = params.get("offset", 0)
        page = split[start : start + params.get("limit", 100)]
        return {
            "examples": [
                {"id": str(start + at), "split": params["split"], "data": data} for at, data in enumerate(page)
            ],
            "total": len(split),
        }

    def discover(self) -> dict[str, Any]:
        script = self.script
        return {
            "protocol_versions": ["1"],
            "server": {"name": "scripted", "version": "1", "language": "python", "instance_id": "one"},
            "program": {
                "name": "words",
                "version": "3",
                "components": [{"name": name} for name in script.seed],
                "seed_candidate": script.seed,
            },
            "datasets": {name: {"size": len(split), "digest": "d"} for name, split in script.datasets.items()},
            "capabilities": list(script.capabilities),
            "limits": {"max_concurrency": script.max_concurrency, "max_batch_size": 100, "max_request_bytes": 2**26},
        }


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The URL of a running server, in a thread of its own."""
    loop = asyncio.new_event_loop()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    runner = web.AppRunner(ContractServer(script).app(), shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        await web.SockSite(runner, listener).start()

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
