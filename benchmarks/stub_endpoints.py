"""Many endpoints in one process: `python -m benchmarks.stub_endpoints COUNT SLOTS`; the program sleeps and digests.

Each endpoint is the product's own server with the program in its process. Beside them, on ports of their own: a server
of gepa-rpc's protocol over the same task, and a page with the times of the examples. A line of JSON has all addresses.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web

from benchmarks import gepa_rpc_server, hashed_task
from benchmarks.payload import TOKEN
from protocol import Candidate, CandidateItem, ComponentInfo, Example, Limits, ProgramInfo
from rpc_server.http import create_app, listening
from rpc_server.program.program import ResultDict
from rpc_server.settings import Settings

ROOT = Path(__file__).resolve().parent.parent


class Timeline:
    """When examples started and ended, in all endpoints together.

    `changes`: (seconds of the system's monotonic clock, +1 or -1), in order.
    """

    def __init__(self) -> None:
        self.changes: list[tuple[float, int]] = []

    def changed(self, by: int) -> None:
        """Record that an example started (1) or ended (-1) now."""
        self.changes.append((time.monotonic(), by))


class SleepingProgram:
    """Sleeps as many seconds as a row has, at most `slots` rows at once."""

    info = ProgramInfo(
        name="sleeper",
        version="1",
        components=[ComponentInfo(name=name) for name in hashed_task.SEED_CANDIDATE],
        seed_candidate=hashed_task.SEED_CANDIDATE,
    )
    capabilities: frozenset[str] = frozenset({"reflective_datasets"})
    splits: Mapping[str, int] = {}
    ready = True

    def __init__(self, slots: int, timeline: Timeline) -> None:
        self.limits = Limits(max_concurrency=slots, max_batch_size=1000, max_request_bytes=64 * 2**20)
        self._slots = asyncio.Semaphore(slots)
        self._timeline = timeline

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
        """Run the batch's rows at the same time, as far as there are slots."""

        async def one(position: int, data: Any) -> None:
            async with self._slots:
                self._timeline.changed(1)
                try:
                    await asyncio.sleep(data["seconds"])
                finally:
                    self._timeline.changed(-1)
            answer = hashed_task.output(candidate, data)
            trace = [{"predictor": "triage", "input": data["text"], "output": answer}]
            on_result(
                position,
                {
                    "status": "ok",
                    "score": hashed_task.score(candidate, data),
                    "output": answer,
                    "seconds": data["seconds"],
                    **({"trajectory": trace} if capture_traces else {}),
                },
            )

        if len(batch) == 1:
            await one(0, batch[0].data)
            return
        async with asyncio.TaskGroup() as running:
            for position, example in enumerate(batch):
                running.create_task(one(position, example.data))

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
        """Return records from traced results."""
        assert method == "make_reflective_dataset", method
        evaluated = params["eval_batch"]
        records = [
            hashed_task.record(example["data"], result["output"], result["score"])
            for example, result in zip(evaluated["batch"], evaluated["results"], strict=True)
        ]
        return {"dataset": dict.fromkeys(params["components_to_update"], records)}

    async def close(self) -> None:
        """Nothing to end."""


def _bound() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    return listener


def _url(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def _timeline_app(timeline: Timeline) -> web.Application:
    async def timeline_page(_request: web.Request) -> web.Response:
        changes, timeline.changes = timeline.changes, []
        return web.json_response(changes)

    app = web.Application()
    app.router.add_get("/timeline", timeline_page)
    return app


async def serve(count: int, slots: int) -> None:
    """Serve until the process is ended."""
    timeline = Timeline()
    async with contextlib.AsyncExitStack() as servers:
        urls = []
        for _ in range(count):
            listener = _bound()
            app = create_app(
                SleepingProgram(slots, timeline), Settings(program="unused", concurrency=slots), token=TOKEN
            )
            await servers.enter_async_context(listening(app, listener))
            urls.append(_url(listener))
        others = []
        for app in (gepa_rpc_server.create_app(slots), _timeline_app(timeline)):
            listener = _bound()
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            servers.push_async_callback(runner.cleanup)
            await web.SockSite(runner, listener).start()
            others.append(_url(listener))
        print(json.dumps({"urls": urls, "gepa_rpc": others[0], "timeline": f"{others[1]}/timeline"}), flush=True)
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Stubs:
    """Where a process of them answers. `timeline`: the changes since it was last asked, as JSON."""

    urls: list[str]
    gepa_rpc: str
    timeline: str


@contextlib.contextmanager
def running(count: int, slots: int) -> Iterator[Stubs]:
    """Endpoints in a process of their own while the block runs; their token is `payload.TOKEN`."""
    command = [sys.executable, "-m", "benchmarks.stub_endpoints", str(count), str(slots)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Stubs(**json.loads(process.stdout.readline()))
        finally:
            process.terminate()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
