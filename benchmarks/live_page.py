"""The live page of a run: how fast results reach it, and what it costs the optimizer: `python -m benchmarks.live_page`.

A driver evaluates one candidate on many rows at about 200 examples a second (a program that sleeps). In turn no page is
open, or five browsers hold a stream of the page's server open. Measured: the seconds from the commit of a result to
its arrival in a browser, the driver's examples per second with and without the page, and the first bytes of a stored
run of 1,000 candidates on 1,000 rows.
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from benchmarks import hashed_task, ours, stub_endpoints
from benchmarks.payload import TOKEN
from gepa_client import RemoteAdapter, Row
from gepa_client.journal.buffer import JournalBuffer
from gepa_client.journal.entries import CANDIDATE, EVALUATE, EVENTS, START, Entry, StoredRun
from gepa_client.journal.journal import Journal
from gepa_client.journal.store import open_store

SLOTS, SECONDS, EXAMPLES = 8, 0.036, 2_000
BROWSERS, ROUNDS = 5, 3
LARGE = 1_000
SERVER = {"capabilities": [], "server": {"language": "python"}}
LIMITS = {"latency_p95_s": 0.3, "with_page": 0.98, "first_paint_s": 1.5}


def declared() -> list[Entry]:
    """Return what a run with these rows begins with."""
    program = {"name": "sleeper", "components": [], "seed_candidate": hashed_task.SEED_CANDIDATE}
    rows = [{"id": str(data["number"]), "data": data} for data in hashed_task.rows(EXAMPLES, SECONDS)]
    answers: list[Any] = [{**SERVER, "program": program}, rows, None, None]
    return [Entry(START, at, "begin", "", "", orjson.dumps(answer)) for at, answer in enumerate(answers)]


def drive(store: str, urls: Sequence[str]) -> None:
    """Evaluate all rows; print the examples per second, and when each result was in the store."""
    committed: dict[int, float] = {}
    with closing(open_store(store)) as opened:
        run = StoredRun(id=uuid.uuid4().hex, status="running", config={})  # a server repeats answers to a run it knows
        opened.create(run, declared())
        opened.claim(run.id, run.claim, ours.OWNER, ours.OWNER)
        write = opened.write

        def timed(run_id: str, owner: str, rows: Sequence[Any]) -> None:
            write(run_id, owner, rows)
            now = time.monotonic()
            committed.update((row.number, now) for row in rows if isinstance(row, Entry) and row.kind == EVALUATE)

        opened.write = timed  # type: ignore[method-assign]
        print(run.id, flush=True)
        sys.stdin.readline()
        buffer = JournalBuffer(opened, run.id, ours.OWNER, lambda _failure: None)
        given = [Row(str(data["number"]), data) for data in hashed_task.rows(EXAMPLES, SECONDS)]
        with RemoteAdapter(list(urls), token=TOKEN, journal=Journal(run.id, buffer)) as adapter:
            began = time.monotonic()
            adapter.batch_evaluate([(hashed_task.SEED_CANDIDATE, given)], False)
            took = time.monotonic() - began
        buffer.close()
    print(json.dumps({"rate": EXAMPLES / took, "committed": list(committed.items())}), flush=True)


async def look(address: str, run: str, arrived: dict[int, float], over: asyncio.Event) -> None:
    """Hold one stream open, and note when each result arrives."""
    base, _, fragment = address.partition("/#")
    token = fragment.partition("token=")[2].partition("&")[0]
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        async with http.post(f"{base}/session", json={"token": token}, headers={"Origin": base}) as answer:
            assert answer.status == 200
        async with http.get(f"{base}/api/runs/{run}/events") as stream:
            while not over.is_set():
                line = await stream.content.readuntil(b"\n")
                if line.startswith(b"data:"):
                    event = orjson.loads(line[5:])
                    now = time.monotonic()
                    if event["event"] == "results":
                        arrived.update((number, now) for number in event["numbers"])


async def one_round(urls: Sequence[str], *, page: bool) -> dict[str, Any]:
    """Drive once; return the driver's rate and, with the page, each result's seconds to the first browser."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "runs.db")
        driver = await process("drive", store, *urls)
        run = await line_of(driver)
        arrived: dict[int, float] = {}
        over = asyncio.Event()
        readers: list[asyncio.Task[None]] = []
        server = None
        if page:
            server = await watch(store, run)
            address = (await line_of(server)).removeprefix("page: ")
            first = [arrived, *({} for _ in range(BROWSERS - 1))]
            readers = [asyncio.create_task(look(address, run, each, over)) for each in first]
            await asyncio.sleep(1.0)  # the page has read what there is, as it has in any run that is watched
        assert driver.stdin is not None
        driver.stdin.write(b"\n")
        found = json.loads(await line_of(driver))
        await asyncio.sleep(1.0)
        for reader in readers:
            reader.cancel()
        for each in (driver, server):
            if each is not None:
                if each.returncode is None and each is server:
                    each.terminate()
                await each.wait()
        delays = [arrived[number] - at for number, at in found["committed"] if number in arrived]
        assert not page or len(delays) == EXAMPLES, len(delays)
        return {"rate": found["rate"], "delays": delays}


def stored_large(path: str) -> None:
    """Store a run of `LARGE` candidates on as many rows."""
    chosen = random.Random(1)  # noqa: S311 - figures of a test run
    rows = [{"id": str(at), "data": {"text": f"row {at}"}} for at in range(LARGE)]
    program = {"name": "large", "components": [], "seed_candidate": {"rules": ""}}
    answers: list[Any] = [{**SERVER, "program": program}, rows, None, None]
    begin = [Entry(START, at, "begin", "", "", orjson.dumps(answer)) for at, answer in enumerate(answers)]
    found = [
        {
            "at": (index + 1) * (LARGE + 7),
            "index": index,
            "texts": {"rules": f"rule {index} " * 40},
            "parents": [chosen.randrange(index)] if index else [],
            "iteration": index,
            "score": index / LARGE,
            "scores": {str(at): round(chosen.random(), 3) for at in range(LARGE)},
            "front": list(range(max(0, index - LARGE // 5), index + 1)),
            "best": index,
            "metric_calls": index * LARGE,
            "metric_calls_before": index * LARGE,
        }
        for index in range(LARGE)
    ]
    decisions = [Entry(EVENTS, at, CANDIDATE, "", "", orjson.dumps(event)) for at, event in enumerate(found)]
    with closing(open_store(path)) as store:
        store.create(StoredRun(id="large", status="completed", config={}), [*begin, *decisions])


async def first_paint() -> float:
    """Return the seconds from the request of a browser until all candidates of a large run have arrived."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "runs.db")
        stored_large(store)
        server = await watch(store, "large")
        address = (await line_of(server)).removeprefix("page: ")
        base, _, fragment = address.partition("/#")
        token = fragment.partition("token=")[2].partition("&")[0]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            await (await http.post(f"{base}/session", json={"token": token}, headers={"Origin": base})).read()
            began, count = time.monotonic(), 0
            async with http.get(f"{base}/api/runs/large/events", read_bufsize=1 << 24) as stream:
                while count < LARGE:
                    line = await stream.content.readuntil(b"\n")
                    count += b'"event":"candidate"' in line[:60]
            took = time.monotonic() - began
        server.terminate()
        await server.wait()
        return took


async def process(*arguments: str) -> asyncio.subprocess.Process:
    """Start this benchmark in another process."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.live_page",
        *arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=1 << 26,
    )


async def watch(store: str, run: str) -> asyncio.subprocess.Process:
    """Start the page's server as a user does."""
    command = [sys.executable, "-m", "gepa_client", "watch", run, "--store", store, "--no-open"]
    return await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)


async def line_of(each: asyncio.subprocess.Process) -> str:
    """Return its next line."""
    assert each.stdout is not None
    return (await each.stdout.readline()).decode().strip()


async def measure() -> dict[str, Any]:
    """Return all figures."""
    ratios: list[float] = []
    delays: list[float] = []
    rates: list[float] = []
    with stub_endpoints.running(1, SLOTS) as stubs:
        for _ in range(ROUNDS):
            without = await one_round(stubs.urls, page=False)
            watched = await one_round(stubs.urls, page=True)
            ratios.append(watched["rate"] / without["rate"])
            rates.append(watched["rate"])
            delays += watched["delays"]
    return {
        "benchmark": "live_page",
        "rate": statistics.median(rates),
        "browsers": BROWSERS,
        "with_page": statistics.median(ratios),
        "latency_p50_s": statistics.median(delays),
        "latency_p95_s": statistics.quantiles(delays, n=20)[-1],
        "latency_max_s": max(delays),
        "first_paint_s": statistics.median([await first_paint() for _ in range(ROUNDS)]),
        "load": os.getloadavg()[0],
        "limits": LIMITS,
    }


def main() -> int:
    """Measure, or drive a run for this benchmark."""
    if sys.argv[1:2] == ["drive"]:
        drive(sys.argv[2], sys.argv[3:])
        return 0
    figures = asyncio.run(measure())
    print(json.dumps(figures))
    kept = (
        figures["latency_p95_s"] <= LIMITS["latency_p95_s"],
        figures["with_page"] >= LIMITS["with_page"],
        figures["first_paint_s"] <= LIMITS["first_paint_s"],
    )
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
