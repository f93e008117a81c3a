"""The page of a run in Chromium: `python -m benchmarks.page_in_browser`; needs Chromium and `npm ci` in the dashboard.

Measured: the first paint of 1,000 candidates on 1,000 rows, frames a second of the heat map while it scrolls and zooms,
the memory of the tab, and the time from the commit of a result to its place on the screen at 200 examples a second.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import stub_endpoints
from benchmarks.live_page import SLOTS, line_of, process, stored_large, watch

MEASURE = Path(__file__).resolve().parent.parent / "clients" / "dashboard" / "scripts" / "measure.mjs"
ROUNDS = 3
LIMITS = {"first_data_s": 1.5, "frames_per_s": 50, "tab_mb": 300, "latency_p95_s": 0.3}


async def browser(what: str, address: str) -> asyncio.subprocess.Process:
    """Start the measurement in Chromium."""
    return await asyncio.create_subprocess_exec(
        "node", str(MEASURE), what, address, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=1 << 26
    )


async def large() -> dict[str, Any]:
    """Return what the page of a large stored run takes."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "runs.db")
        stored_large(store)
        server = await watch(store, "large")
        measured = await browser("large", (await line_of(server)).removeprefix("page: "))
        found: dict[str, Any] = json.loads(await line_of(measured))
        await measured.wait()
        server.terminate()
        await server.wait()
        return found


async def delays() -> list[float]:
    """Return the seconds from each result's commit until a frame showed it, while a driver evaluates."""
    with tempfile.TemporaryDirectory() as folder, stub_endpoints.running(1, SLOTS) as stubs:
        store = str(Path(folder) / "runs.db")
        driver = await process("drive", store, *stubs.urls)
        server = await watch(store, await line_of(driver))
        measured = await browser("live", (await line_of(server)).removeprefix("page: "))
        assert await line_of(measured) == "open"
        assert driver.stdin is not None
        assert measured.stdin is not None
        driver.stdin.write(b"\n")
        ended = json.loads(await line_of(driver))
        await asyncio.sleep(2.0)  # the last results are drawn
        measured.stdin.close()
        drawn = json.loads(await line_of(measured))
        for each in (measured, driver):
            await each.wait()
        server.terminate()
        await server.wait()
    offset = time.time() - time.monotonic()
    committed = sorted(at + offset for _, at in ended["committed"])
    found: list[float] = []
    for at_ms, count in drawn:
        found += [at_ms / 1_000 - at for at in committed[len(found) : count]]
    assert len(found) == len(committed), f"{len(found)} of {len(committed)} results were drawn"
    return found


async def measure() -> dict[str, Any]:
    """Return all figures, medians over the rounds."""
    pages = [await large() for _ in range(ROUNDS)]
    seconds = [each for _ in range(ROUNDS) for each in await delays()]
    keys = ("first_data_s", "all_candidates_s", "page_cpu_s", "page_script_s", "map_opened_s", "heap_mb", "tab_mb")
    return {
        "benchmark": "page_in_browser",
        **{key: round(statistics.median(page[key] for page in pages), 3) for key in keys},
        "frames_per_s": round(statistics.median(min(page["frames_per_s"].values()) for page in pages), 1),
        "latency_p50_s": round(statistics.median(seconds), 3),
        "latency_p95_s": round(statistics.quantiles(seconds, n=20)[-1], 3),
        "load": os.getloadavg()[0],
        "limits": LIMITS,
    }


def main() -> int:
    """Measure; 1 if a limit is missed."""
    figures = asyncio.run(measure())
    print(json.dumps(figures))
    missed = [key for key, limit in LIMITS.items() if (figures[key] < limit) == (key == "frames_per_s")]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
