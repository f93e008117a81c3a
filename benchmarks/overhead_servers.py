"""The servers that `call_overhead.py` measures: `python -m benchmarks.overhead_servers raw|ours|fastapi`."""

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web

from benchmarks import payload
from protocol import Candidate, CandidateItem, ComponentInfo, Example, Limits, ProgramInfo
from rpc_server.http import create_app, listening
from rpc_server.program.program import ResultDict
from rpc_server.settings import Settings

MAX_BYTES = 64 * 2**20


class EchoProgram:
    """An in-process program: each example's trajectory is its own data."""

    info = ProgramInfo(name="echo", components=[ComponentInfo(name="rules")], seed_candidate=payload.CANDIDATE)
    capabilities: frozenset[str] = frozenset()
    limits = Limits(max_concurrency=1000, max_batch_size=100_000, max_request_bytes=MAX_BYTES)
    splits: Mapping[str, int] = {}
    ready = True

    async def evaluate(
        self,
        candidate: Candidate,
        batch: Sequence[Example],
        *,
        capture_traces: bool,
        items: Sequence[CandidateItem] | None = None,  # noqa: ARG002 - not offered
        timeout_s: float | None = None,  # noqa: ARG002  # see the interface
        group: str | None = None,  # noqa: ARG002  # see the interface
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """Answer at once."""
        del candidate, capture_traces  # an echo does not depend on them
        for position, example in enumerate(batch):
            on_result(position, payload.result(example.data))

    async def score(
        self,
        batch: Sequence[Example],
        results: Sequence[ResultDict],
        *,
        timeout_s: float | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """Never asked here."""
        raise AssertionError(batch, results, timeout_s, on_result)

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Never asked here."""
        del params
        raise AssertionError(method)

    async def close(self) -> None:
        """Nothing to end."""


async def raw_evaluate(request: web.Request) -> web.Response:
    """Do the least work of a server: parse, answer, write."""
    call = orjson.loads(await request.read())
    results = [payload.result(example["data"]) for example in call["params"]["batch"]]
    body = orjson.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {"results": results}})
    return web.Response(body=body, content_type="application/json")


async def serve_raw(listener: socket.socket) -> None:
    """Bare aiohttp and orjson."""
    app = web.Application(client_max_size=MAX_BYTES)
    app.router.add_post("/rpc", raw_evaluate)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    await asyncio.Event().wait()


async def serve_ours(listener: socket.socket) -> None:
    """Return the product's own stack, with the program in the same process."""
    settings = Settings(program="unused", max_request_bytes=MAX_BYTES, max_batch_size=100_000)
    async with listening(create_app(EchoProgram(), settings, token=payload.TOKEN), listener):
        await asyncio.Event().wait()


def serve_fastapi(listener: socket.socket) -> None:
    """FastAPI in two styles: a typed body and a dict returned, as most write it, and an answer that is typed too."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Row(BaseModel):
        id: str
        data: dict[str, Any]

    class Evaluate(BaseModel):
        candidate: dict[str, str]
        batch: list[Row]
        capture_traces: bool = False

    class Evaluated(BaseModel):
        status: str
        score: float
        output: Any
        trajectory: Any
        seconds: float

    class Evaluation(BaseModel):
        results: list[Evaluated]

    api = FastAPI()

    @api.post("/evaluate")
    def evaluate(call: Evaluate):  # type: ignore[no-untyped-def]  # a return type would change what FastAPI does
        return {"results": [payload.result(example.data) for example in call.batch]}

    @api.post("/evaluate_typed")
    def evaluate_typed(call: Evaluate) -> Evaluation:
        return Evaluation(results=[Evaluated(**payload.result(example.data)) for example in call.batch])

    uvicorn.Server(uvicorn.Config(api, log_level="warning")).run(sockets=[listener])


def main(kind: str) -> None:
    """Print the port on a line, then serve."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    if kind == "fastapi":
        serve_fastapi(listener)
    elif kind == "raw":
        asyncio.run(serve_raw(listener))
    else:
        asyncio.run(serve_ours(listener))


if __name__ == "__main__":
    main(sys.argv[1])
