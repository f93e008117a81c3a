"""The service under load: `python benchmarks/service_load.py`. Its limits are for two idle cores.

The API is a process of `evolverpc service api` over a SQLite file. Twenty tenants submit 100 jobs a second, at times
that do not depend on the answers; 500 streams of 50 jobs are opened at once, and each must end with its job; the same
submissions are made again while the streams are open. Then 200 jobs of 20 tenants, one of whom submitted more than all
others before them, are taken one after the other and done at once: the queue's order is measured, not the jobs.
"""

import asyncio
import base64
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from gepa_service.auth.keys import make_key
from gepa_service.jobs.dispatcher import Queue
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.model.work import Work
from gepa_service.records import RecordStore, new_id, now, open_records

TENANT_COUNT = 20
RATE, SECONDS = 100, 10
STREAMS, FOLLOWED_JOBS = 500, 50
GREEDY, OTHERS = 105, 5
QUEUED = GREEDY + OTHERS * (TENANT_COUNT - 1)
ROWS = 20
START_S, STREAM_S = 60.0, 60.0
LIMITS = {
    "submit_p99_ms": 100,
    "submit_p99_ms_with_streams": 100,
    "refused": 0,
    "refused_with_streams": 0,
    "streams_lost": 0,
    "first_job_turn": TENANT_COUNT,
    "spread_of_turns": TENANT_COUNT,
    "rss_growth_mb": 100,
}


def main() -> int:
    """Measure; return 1 if a limit is missed."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with closing(open_records(str(folder / "records.db"))) as records:
            keys = [_key(records, f"tenant{number:02d}") for number in range(TENANT_COUNT)]
            with _api(folder) as (url, pid):
                figures = asyncio.run(_loaded(url, pid, keys))
        with closing(open_records(str(folder / "queue.db"))) as records:
            figures |= _fairness(records)
    figures |= {"load_before": round(load, 2), "limits": LIMITS}
    print(json.dumps(figures))
    return int(any(figures[key] > limit for key, limit in LIMITS.items()))


def _key(records: RecordStore, tenant: str) -> str:
    """Make a tenant without a limit of requests; return a key of it."""
    quotas = Quotas(requests_per_minute=10**6, jobs_queued=10**6)
    records.insert(Tenant(tenant=TENANTS, id=tenant, name=tenant, quotas=quotas))
    key, record = make_key(tenant, "load", "editor")
    records.insert(record)
    return key


@contextmanager
def _api(folder: Path) -> Iterator[tuple[str, int]]:
    """Run the API; yield its URL and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = ["--database", str(folder / "records.db"), "--journals", str(folder / "journals.db"), "--allow-local"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gepa_service.cli", "api", *shared, "--port", str(port)],
        env={**os.environ, "GEPA_SERVICE_MASTER_KEY": base64.b64encode(os.urandom(32)).decode()},
        stderr=subprocess.DEVNULL,  # a line for each request
    )
    try:
        deadline = time.monotonic() + START_S
        while not _listens(port):
            assert process.poll() is None and time.monotonic() < deadline, "the API does not start"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


async def _loaded(url: str, pid: int, keys: Sequence[str]) -> dict[str, Any]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector, timeout=aiohttp.ClientTimeout(START_S)) as http:
        async with http.get("/health") as answer:
            assert answer.status == 200
        await _submissions(http, keys, RATE)  # a second, to load what is loaded at the first request
        before, used = _rss_mb(pid), _cpu_s(pid)
        alone = await _submissions(http, keys, RATE * SECONDS)
        alone["submit_cpu_ms"] = round(1000 * (_cpu_s(pid) - used) / (RATE * SECONDS), 2)
        _show("submissions alone", alone)
        figures = await _streams(http, keys, pid)
    figures["rss_before_mb"], figures["rss_growth_mb"] = before, round(figures["rss_peak_mb"] - before, 1)
    return {**alone, **{f"{name}_with_streams": value for name, value in figures.pop("again").items()}, **figures}


async def _submissions(http: aiohttp.ClientSession, keys: Sequence[str], count: int) -> dict[str, Any]:
    """Submit jobs, one each 1/RATE s; the time of each counts from the moment at which it was due."""
    body = {
        "repo_url": "/srv/program",
        "trainset": [{"question": f"what is {number} and {number}?", "answer": str(number)} for number in range(ROWS)],
        "max_metric_calls": 100,
    }
    began = asyncio.get_running_loop().time() + 0.1
    taken, refused = [], 0

    async def submit(number: int) -> None:
        nonlocal refused
        due = began + number / RATE
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        async with http.post("/optimize", json=body, headers=_as(keys[number % len(keys)])) as answer:
            await answer.read()
            refused += answer.status != 202
        taken.append(asyncio.get_running_loop().time() - due)

    await asyncio.gather(*map(submit, range(count)))
    ordered = sorted(taken)
    took = max(0.0, asyncio.get_running_loop().time() - began)
    return {
        "submit_p50_ms": round(1000 * statistics.median(ordered), 1),
        "submit_p99_ms": round(1000 * ordered[int(0.99 * len(ordered))], 1),
        "submitted_per_s": round(count / took, 1),
        "refused": refused,
    }


async def _streams(http: aiohttp.ClientSession, keys: Sequence[str], pid: int) -> dict[str, Any]:
    """Open all streams at once, submit jobs meanwhile, cancel the followed jobs; each stream must end by itself."""
    jobs = []
    for number in range(FOLLOWED_JOBS):
        key = keys[number % len(keys)]
        body = {"repo_url": "/srv/program", "max_metric_calls": 100}
        async with http.post("/optimize", json=body, headers=_as(key)) as answer:
            jobs.append(((await answer.json())["job_id"], key))
    began, opened, ended = time.monotonic(), 0, 0
    all_opened, all_ended = asyncio.Event(), asyncio.Event()

    async def follow(job: str, key: str) -> None:
        nonlocal opened, ended
        async with http.get(f"/job/{job}/stream", headers=_as(key), timeout=aiohttp.ClientTimeout()) as stream:
            async for line in stream.content:
                if line.startswith(b"data:") and b'"pending"' in line:
                    opened += 1
                    if opened == STREAMS:
                        all_opened.set()
                ended += line == b"event: end\n"
                if ended == STREAMS:
                    all_ended.set()

    tasks = [asyncio.create_task(follow(*jobs[number % len(jobs)])) for number in range(STREAMS)]
    try:
        await _within(all_opened)
        opened_s = time.monotonic() - began
        again = await _submissions(http, keys, RATE * SECONDS)
        _show(f"submissions with {opened} streams", again)
        peak = _rss_mb(pid)
        began = time.monotonic()
        for job, key in jobs:
            async with http.post(f"/job/{job}/cancel", headers=_as(key)) as answer:
                assert answer.status == 200, await answer.text()
        await _within(all_ended)
        ended_s = time.monotonic() - began
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    figures = {"streams_open": opened, "opened_s": round(opened_s, 2), "ended_s": round(ended_s, 2)}
    return {**figures, "streams_lost": STREAMS - min(opened, ended), "rss_peak_mb": peak, "again": again}


async def _within(event: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(event.wait(), STREAM_S)
    except TimeoutError:
        return


def _fairness(records: RecordStore) -> dict[str, Any]:
    """Return the turns at which jobs came, counted from 1, and the seconds that they waited."""
    names = ["greedy"] * GREEDY + [f"other{at % (TENANT_COUNT - 1):02d}" for at in range(QUEUED - GREEDY)]
    for name in names:
        records.insert(Work(tenant=name, id=new_id("job"), repo_url="/srv/program", created_by="key:load"))
    queue = Queue(records)
    turns: dict[str, list[int]] = {}
    waited: dict[str, list[float]] = {}
    began = time.monotonic()
    for turn in range(1, QUEUED + 1):
        job = queue.take()
        assert job is not None
        turns.setdefault(job.tenant, []).append(turn)
        waited.setdefault(job.tenant, []).append((now() - job.created).total_seconds())
        records.replace(job.model_copy(update={"status": "completed"}))
    took = time.monotonic() - began
    last = [found[-1] for tenant, found in turns.items() if tenant != "greedy"]
    means = [statistics.mean(found) for tenant, found in waited.items() if tenant != "greedy"]
    print(f"mean wait of a tenant with {OTHERS} jobs: {min(means):.2f} to {max(means):.2f} s", flush=True)
    return {
        "first_job_turn": max(found[0] for found in turns.values()),
        "spread_of_turns": max(last) - min(last),
        "wait_least_s": round(min(means), 2),
        "wait_most_s": round(max(means), 2),
        "wait_greedy_s": round(statistics.mean(waited["greedy"]), 2),
        "claims_per_s": round(QUEUED / took, 1),
    }


def _as(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _rss_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert found is not None
    return round(int(found[1]) / 1024, 1)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _show(what: str, figures: dict[str, Any]) -> None:
    print(f"{what}: {', '.join(f'{name} {value}' for name, value in figures.items())}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
