"""One evaluation of `scale.py` in a process of its own, so that its CPU time and memory are its own.

Reads `{"way", "urls", "slots", "seconds", "store"}` as a line of JSON and writes one with what it took. `way`: `ours`,
`raced` or `bare`. `seconds`: of each example, in order. `store`: a path, null for no journal.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from benchmarks import hashed_task, ours
from benchmarks.payload import TOKEN
from gepa_client import Row
from gepa_client.selection.race import BlockRace, RacedProposal


def rows(seconds: Sequence[float]) -> list[dict[str, Any]]:
    """Return the examples' data."""
    return [
        {**data, "seconds": length} for data, length in zip(hashed_task.rows(len(seconds), 0.0), seconds, strict=True)
    ]


def peak_mb() -> float:
    """Return the most memory this process has held, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


class Meter:
    """Wall and CPU seconds, and growth of memory in MB, while the block runs; `began`: the system's monotonic clock."""

    def __enter__(self) -> "Meter":
        self._memory = peak_mb()
        self._cpu = time.process_time()
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.figures = {
            "began": self._began,
            "wall_s": time.monotonic() - self._began,
            "cpu_s": time.process_time() - self._cpu,
            "memory_mb": peak_mb() - self._memory,
        }


def run_ours(asked: dict[str, Any]) -> dict[str, float]:
    """Through the product's adapter."""
    given = [Row(str(data["number"]), data) for data in rows(asked["seconds"])]
    store = Path(asked["store"]) if asked["store"] is not None else None
    with ours.adapter(asked["urls"], store) as adapter:
        with Meter() as meter:
            [batch] = adapter.batch_evaluate([(hashed_task.SEED_CANDIDATE, given)], False)
        assert len(batch.scores) == len(given)
    return meter.figures


def run_raced(asked: dict[str, Any]) -> dict[str, float]:
    """Through a race of one proposal that no decision drops."""
    given = {at: Row(str(data["number"]), data) for at, data in enumerate(rows(asked["seconds"]))}
    proposal = RacedProposal(hashed_task.SEED_CANDIDATE, dict.fromkeys(given, 0.0), {})
    with ours.adapter(asked["urls"], Path(asked["store"])) as adapter:
        with Meter() as meter:
            adapter.wait_for(BlockRace(adapter, [proposal], given, 1.0).run())
        assert len(proposal.results) == len(given)
    return meter.figures


async def run_bare(asked: dict[str, Any]) -> dict[str, float]:
    """Run the least client: as many workers as slots, one request after another, nothing checked or stored."""
    given = iter(rows(asked["seconds"]))
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    scores: list[float] = []

    async def work(session: aiohttp.ClientSession, url: str) -> None:
        for data in given:
            params = {
                "candidate": hashed_task.SEED_CANDIDATE,
                "batch": [{"id": str(data["number"]), "data": data}],
                "capture_traces": False,
            }
            body = orjson.dumps({"jsonrpc": "2.0", "id": data["number"], "method": "evaluate", "params": params})
            async with session.post(f"{url}/rpc", data=body, headers=headers) as response:
                answer = orjson.loads(await response.read())
            scores.append(answer["result"]["results"][0]["score"])

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        with Meter() as meter:
            await asyncio.gather(*(work(session, url) for _ in range(asked["slots"]) for url in asked["urls"]))
    assert len(scores) == len(asked["seconds"])
    return meter.figures


def main() -> None:
    """Read, run, write."""
    asked = json.loads(sys.stdin.readline())
    in_process = {"ours": run_ours, "raced": run_raced}
    run = in_process.get(asked["way"])
    figures = run(asked) if run is not None else asyncio.run(run_bare(asked))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
