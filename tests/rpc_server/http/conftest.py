"""A server on a real socket in front of a program that each example controls."""

import asyncio
import io
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import orjson
import pytest

from protocol import CandidateItem, ComponentInfo, Example, Limits, ProgramInfo
from protocol.errors import RpcError
from rpc_server.http import SERVICE, create_app, listening
from rpc_server.methods.dataset_rows import Datasets
from rpc_server.program.program import ResultDict
from rpc_server.settings import Settings

TOKEN = "the-token"
SEED = {"system": "seed"}
WAIT_S = 10


class FakeProgram:
    """Runs in this process. An example's data may `wait` for a gate, or leave a `trajectory`."""

    def __init__(self, *capabilities: str, max_concurrency: int = 4, whole_batches: bool = False) -> None:
        self.info = ProgramInfo(name="fake", components=[ComponentInfo(name="system")], seed_candidate=SEED)
        self.capabilities = frozenset({"reflective_datasets", *capabilities})
        self.limits = Limits(
            max_concurrency=max_concurrency, max_batch_size=10_000, max_request_bytes=2**30, whole_batches=whole_batches
        )
        self.ready = True
        self.gates: dict[str, asyncio.Event] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.cancelled = asyncio.Event()
        self.waiting = asyncio.Event()

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    async def evaluate(
        self,
        candidate: dict[str, str],  # noqa: ARG002  # see the interface
        batch: Sequence[Example],
        *,
        capture_traces: bool,
        items: Sequence[CandidateItem] | None = None,  # noqa: ARG002 - not offered
        timeout_s: float | None = None,  # noqa: ARG002  # see the interface
        group: str | None = None,  # noqa: ARG002  # see the interface
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        for position, example in enumerate(batch):
            data = example.data if isinstance(example.data, dict) else {}
            if "wait" in data:
                await self._wait(data["wait"])
            if "raise" in data:
                raise RuntimeError(data["raise"])
            result = {"status": "ok", "score": 1.0, "output": example.data, "seconds": 0.0}
            if "error" in data:
                result |= {"status": "infra_error", "score": None, "error": data["error"]}
            if capture_traces and "trajectory" in data:
                result["trajectory"] = data["trajectory"]
            if capture_traces and "ref" in data:
                result["trajectory_ref"] = data["ref"]
            result |= {name: data[name] for name in ("metric_calls", "usage") if name in data}
            on_result(position, result)

    async def score(
        self,
        batch: Sequence[Example],
        results: Sequence[ResultDict],
        *,
        timeout_s: float | None = None,  # noqa: ARG002  # see the interface
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        self.calls.append(("score", {"batch": [example.data for example in batch], "results": list(results)}))
        for position, example in enumerate(batch):
            if isinstance(example.data, dict) and "wait" in example.data:
                await self._wait(example.data["wait"])
            on_result(position, self.answers["score"])

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((method, params))
        if "wait" in params.get("candidate", {}).get("system", ""):
            await self._wait("call")
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.ready = False

    async def _wait(self, name: str) -> None:
        self.waiting.set()
        try:
            await asyncio.wait_for(self.gate(name).wait(), WAIT_S)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class Server:
    """A running server, and the ways to talk to it."""

    token = TOKEN
    seed = SEED

    def __init__(self, program: FakeProgram, app: Any, port: int, session: aiohttp.ClientSession) -> None:
        self.program = program
        self.service = app[SERVICE]
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.session = session

    async def post(
        self, body: Any, *, path: str = "/rpc", verb: str = "POST", headers: dict[str, str | None] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of the answer; a header of None is left out."""
        merged = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **(headers or {})}
        async with self.session.request(
            verb,
            self.url + path,
            data=_sendable(body),
            headers={name: value for name, value in merged.items() if value is not None},
            skip_auto_headers=["Content-Type"],
        ) as response:
            text = await response.read()
            return response.status, orjson.loads(text) if text else None

    async def call(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> Any:
        """The result, or the error raised."""
        full = {**(params or {}), **({"_meta": meta} if meta else {})}
        status, answer = await self.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": full})
        assert status == 200, answer
        if "error" in answer:
            raise RpcError.from_wire(answer["error"])
        return answer["result"]

    async def evaluate(self, *data: Any, capture_traces: bool = False, **meta: Any) -> list[dict[str, Any]] | Any:
        """The results of a batch of inline examples (or the pending answer)."""
        params = {"candidate": SEED, "batch": batch(*data), "capture_traces": capture_traces}
        answer = await self.call("evaluate", params, **meta)
        return answer.get("results", answer)

    async def raw(self, text: bytes) -> bytes:
        """What comes back for these bytes on a connection of their own, up to the end of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(text)
            await writer.drain()
            async with asyncio.timeout(WAIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                return head + await reader.readexactly(int(length[1]) if length else 0)
        finally:
            writer.close()
            await writer.wait_closed()

    async def still_works(self) -> None:
        """The next good call succeeds."""
        assert [result["status"] for result in await self.evaluate("good")] == ["ok"]


def _sendable(body: Any) -> Any:
    if body is None or hasattr(body, "__aiter__"):
        return body
    return io.BytesIO(body if isinstance(body, bytes) else orjson.dumps(body))


def batch(*data: Any) -> list[dict[str, Any]]:
    return [{"id": str(position), "data": one} for position, one in enumerate(data)]


Start = Callable[..., Awaitable[Server]]


@pytest.fixture
def fake_program() -> type[FakeProgram]:
    return FakeProgram


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a server: `await start(program, setting=value)`; ended after the test."""
    async with AsyncExitStack() as stack:

        async def started(
            program: FakeProgram | None = None, *, datasets: Datasets | None = None, **given: Any
        ) -> Server:
            program = program if program is not None else FakeProgram()
            app = create_app(program, Settings(program="fake", **given), token=TOKEN, datasets=datasets)
            sock = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            await stack.enter_async_context(listening(app, sock))
            session = await stack.enter_async_context(
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=WAIT_S * 3))
            )
            return Server(program, app, sock.getsockname()[1], session)

        yield started


@pytest.fixture
async def server(start: Start) -> Server:
    return await start()
