"""What one call costs: raw aiohttp + orjson, ours, ours with a program process, and `requests.post` to FastAPI.

All servers run at once, each in a process of its own; rounds of calls go to them in turn, so that a slow moment of the
machine falls on all alike. A figure is the median over rounds of the ratio within a round. The last line is JSON.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import requests

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import payload  # noqa: E402  the repository is not a package
from rpc_server.dispatch import check_envelope  # noqa: E402
from sandbox_runtime import running_server  # noqa: E402

SIZES = {"2KB": 2_000, "200KB": 200_000, "5MB": 5_000_000}
CALLS = {"2KB": 150, "200KB": 30, "5MB": 3}
ROUNDS = 15

Call = Callable[[dict[str, Any]], Awaitable[Any]]


@contextlib.contextmanager
def served(kind: str) -> Iterator[int]:
    """Return the port of one of `overhead_servers.py`."""
    command = [sys.executable, "-m", "benchmarks.overhead_servers", kind]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def aiohttp_call(session: aiohttp.ClientSession, url: str, token: str) -> Call:
    """Make a call as our client does: orjson both ways over one kept connection."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}

    async def call(request: dict[str, Any]) -> Any:
        async with session.post(url, data=orjson.dumps(request), headers=headers) as response:
            return orjson.loads(await response.read())["result"]

    return call


def requests_call(url: str) -> Call:
    """Make a call as the nearest peer does: a fresh connection, the standard library's JSON."""

    async def call(request: dict[str, Any]) -> Any:
        return requests.post(url, json=request["params"], timeout=60).json()  # noqa: ASYNC210  blocking is this peer's way

    return call


@contextlib.asynccontextmanager
async def stacks() -> AsyncIterator[dict[str, Call]]:
    """Every stack, running; the key is its row."""
    gepa_server = [
        str(Path(sys.executable).parent / "gepa-server"),
        *(
            "--program",
            str(ROOT / "benchmarks" / "echo_program.py"),
            "--workers",
            "1",
            "--max-batch-size",
            "100000",
        ),
    ]
    with contextlib.ExitStack() as servers:
        raw, ours, fastapi = (servers.enter_context(served(kind)) for kind in ("raw", "ours", "fastapi"))
        hop = servers.enter_context(running_server(gepa_server, env={"GEPA_TOKEN": payload.TOKEN}))
        async with aiohttp.ClientSession() as session:
            yield {
                "raw": aiohttp_call(session, f"http://127.0.0.1:{raw}/rpc", payload.TOKEN),
                "ours": aiohttp_call(session, f"http://127.0.0.1:{ours}/rpc", payload.TOKEN),
                "stdio": aiohttp_call(session, hop.url, payload.TOKEN),
                "peer": requests_call(f"http://127.0.0.1:{fastapi}/evaluate"),
                "peer, typed": requests_call(f"http://127.0.0.1:{fastapi}/evaluate_typed"),
            }


async def until_up(call: Call) -> None:
    """Wait for a server that prints its port before it serves."""
    for _ in range(200):
        try:
            await call(payload.request(100))
        except (aiohttp.ClientError, requests.ConnectionError):
            await asyncio.sleep(0.05)
        else:
            return
    raise SystemExit("a server did not come up")


async def seconds(call: Call, request: dict[str, Any], times: int) -> float:
    """Mean seconds of a call; every answer is looked at."""
    expected = len(request["params"]["batch"])
    started = time.perf_counter()
    for _ in range(times):
        answer = await call(request)
        if len(answer["results"]) != expected or answer["results"][-1]["status"] != "ok":
            raise SystemExit(f"a wrong answer: {str(answer)[:300]}")
    return (time.perf_counter() - started) / times


def envelope_check_growth() -> float:
    """Return the envelope check's time on a parsed 5 MB request over that on a 2 KB one."""
    small, large = (orjson.loads(orjson.dumps(payload.request(SIZES[size]))) for size in ("2KB", "5MB"))

    def once(message: Any) -> float:
        started = time.perf_counter()
        for _ in range(20_000):
            check_envelope(message)
        return time.perf_counter() - started

    return statistics.median(once(large) / once(small) for _ in range(9))


async def main() -> None:
    """Measure, print a table, end with the line of JSON."""
    measured: dict[str, dict[str, list[float]]] = {size: {} for size in SIZES}
    async with stacks() as rows:
        for call in rows.values():
            await until_up(call)
        for size, target in SIZES.items():
            request = payload.request(target)
            for call in rows.values():
                await seconds(call, request, 2)
            for number in range(ROUNDS):
                order = list(rows.items())
                for name, call in order if number % 2 else reversed(order):
                    measured[size].setdefault(name, []).append(await seconds(call, request, CALLS[size]))
            print(
                size,
                {name: f"{statistics.median(times) * 1000:.2f} ms" for name, times in measured[size].items()},
                flush=True,
            )

    def ratios(over: str, under: str) -> dict[str, float]:
        return {
            size: round(statistics.median(a / b for a, b in zip(times[over], times[under], strict=True)), 3)
            for size, times in measured.items()
        }

    print(
        json.dumps(
            {
                "vs_raw": ratios("ours", "raw"),
                "vs_peer_style": ratios("ours", "peer"),
                "vs_peer_style_typed": ratios("ours", "peer, typed"),
                "with_stdio_hop_vs_raw": ratios("stdio", "raw"),
                "envelope_check_growth": round(envelope_check_growth(), 3),
            }
        )
    )


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(ROOT)
    asyncio.run(main())
