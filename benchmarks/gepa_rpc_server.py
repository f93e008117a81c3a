"""A server of gepa-rpc 0.2.2's protocol, as its adapter and models describe it: two routes over plain HTTP.

Like the TypeScript library behind it (`numThreads`), it evaluates one request's examples on a pool of workers.
"""

import asyncio
from typing import Any

from aiohttp import web

from benchmarks import hashed_task


def create_app(threads: int) -> web.Application:
    """Return an application whose every `/evaluate` runs `threads` examples at once."""

    async def evaluate(request: web.Request) -> web.Response:
        asked = await request.json()
        slots = asyncio.Semaphore(threads)
        found = await asyncio.gather(*(_run(slots, asked["candidate"], data) for data in asked["batch"]))
        traces = [_trace(at, data, *one) for at, (data, one) in enumerate(zip(asked["batch"], found, strict=True))]
        return web.json_response(
            {
                "outputs": [{"output": answer} for answer, _ in found],
                "scores": [scored for _, scored in found],
                "trajectories": traces if asked["capture_traces"] else None,
            }
        )

    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/evaluate", evaluate)
    app.router.add_post("/make_reflective_dataset", _make_reflective_dataset)
    return app


async def _run(slots: asyncio.Semaphore, candidate: dict[str, str], data: hashed_task.Data) -> tuple[str, float]:
    async with slots:
        await asyncio.sleep(data["seconds"])
    return hashed_task.output(candidate, data), hashed_task.score(candidate, data)


def _trace(index: int, data: hashed_task.Data, answer: str, scored: float) -> dict[str, Any]:
    """Return the library's `Trace`."""
    return {
        "example_ind": index,
        "example": data,
        "prediction": {"output": answer},
        "trace": [{"predictor": "triage", "input": data["text"], "output": answer}],
        "score": {"score": scored, "feedback": None},
    }


async def _make_reflective_dataset(request: web.Request) -> web.Response:
    asked = await request.json()
    records = [
        hashed_task.record(trace["example"], trace["prediction"]["output"], trace["score"]["score"])
        for trace in asked["eval_batch"]["trajectories"]
    ]
    return web.json_response(dict.fromkeys(asked["components_to_update"], records))
