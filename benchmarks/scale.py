"""1, 4 and 16 endpoints of 64 slots, 64 to 1,024 examples of 2 to 6 s in flight: how busy, and what the journal costs.

Busy is measured by the endpoints: examples running over slots, from the moment when as many were started as there are
slots to the one when the last was started; what comes before and after are ramps. The same schedule goes through bare
aiohttp (as many workers as slots, nothing checked, kept or repeated), through a race of one proposal that is never
dropped (blocks of rows with a decision before each) and, for 16 endpoints, through our adapter without a journal, in
turn. The journal's share is the time it adds until the last example is started: how long the rest then takes is luck
with the order. Its growth is measured on the journal alone, fed with 20,000 answers. The last line is JSON; the exit
status is 1 where a limit is missed.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import journal_growth, stub_endpoints  # noqa: E402  the repository is not a package

SLOTS = 64
SHORTEST_S, LONGEST_S = 2.0, 6.0
PER_SLOT = 3.0
"""Examples for each slot: enough for eight seconds between the ramps."""

ENDPOINTS = (1, 4, 16)
FULL_SPEED = 3000
"""Examples of no length at all, through one endpoint: what a call costs when nothing has to be waited for."""

SEED = 0
AT_LEAST = {"busy_vs_bare": 0.95, "raced_vs_bare": 0.95}
AT_MOST = {"journal_share": 0.05, "journal_growth": 1.2}


@dataclass(frozen=True)
class Ran:
    """One evaluation. `busy`: the share of the slots between the ramps.

    `filled_s`, `started_s`: until as many examples were started as there are slots, and until the last one was.
    """

    wall_s: float
    cpu_s: float
    memory_mb: float
    busy: float
    filled_s: float
    started_s: float


def lengths(count: int) -> list[float]:
    """Seconds of each example, in the order asked."""
    source = random.Random(SEED)  # noqa: S311  a benchmark's data, no secret
    return [source.uniform(SHORTEST_S, LONGEST_S) for _ in range(count)]


def busy_share(changes: Sequence[tuple[float, int]], slots: int) -> float:
    """Of the slots between the ramps, from when examples started (+1) and ended (-1)."""
    starts = [at for at, by in changes if by > 0]
    begin, end = starts[slots - 1], starts[-1]
    area, running, last = 0.0, 0, begin
    for at, by in changes:
        moment = min(max(at, begin), end)
        area += running * (moment - last)
        running, last = running + by, moment
    return area / (slots * (end - begin))


def run(way: str, stubs: stub_endpoints.Stubs, seconds: Sequence[float], *, recorded: bool = True) -> Ran:
    """One evaluation in a process of its own; recorded in a new store unless `recorded` is false."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "runs.db") if recorded else None
        asked = {"way": way, "urls": stubs.urls, "slots": SLOTS, "seconds": list(seconds), "store": store}
        command = [sys.executable, "-m", "benchmarks.scale_run"]
        ended = subprocess.run(
            command, cwd=ROOT, input=json.dumps(asked) + "\n", stdout=subprocess.PIPE, text=True, check=True
        )
    with urllib.request.urlopen(stubs.timeline) as response:  # noqa: S310  our own page on loopback
        changes = json.load(response)
    assert sum(by > 0 for _, by in changes) == len(seconds), "not every example ran once"
    figures = json.loads(ended.stdout.splitlines()[-1])
    began = figures.pop("began")
    starts = [at - began for at, by in changes if by > 0]
    slots = SLOTS * len(stubs.urls)
    return Ran(**figures, busy=busy_share(changes, slots), filled_s=starts[slots - 1], started_s=starts[-1])


def steady(endpoints: int, rounds: int) -> dict[str, list[Ran]]:
    """All ways through so many endpoints, by round."""
    seconds = lengths(round(SLOTS * endpoints * PER_SLOT))
    ran: dict[str, list[Ran]] = {"ours": [], "bare": [], "raced": []}
    if endpoints == max(ENDPOINTS):
        ran["unrecorded"] = []
    with stub_endpoints.running(endpoints, SLOTS) as stubs:
        for number in range(rounds):
            for way in ran if number % 2 else reversed(list(ran)):
                one = run("ours" if way == "unrecorded" else way, stubs, seconds, recorded=way in ("ours", "raced"))
                ran[way].append(one)
                print(f"{endpoints} endpoints, {way}: {one.busy:.4f} busy, {one.started_s:.2f} s", flush=True)
    return ran


def full_speed(rounds: int) -> dict[str, float]:
    """Milliseconds of wall time per example of no length, by way."""
    ran: dict[str, list[float]] = {"ours": [], "bare": [], "unrecorded": []}
    with stub_endpoints.running(1, SLOTS) as stubs:
        for _ in range(rounds):
            for way, taken in ran.items():
                one = run("ours" if way == "unrecorded" else way, stubs, [0.0] * FULL_SPEED, recorded=way == "ours")
                taken.append(one.wall_s / FULL_SPEED * 1000)
    return {way: round(statistics.median(taken), 3) for way, taken in ran.items()}


def paired(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the ratios within a round."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def summary(ran: dict[str, list[Ran]], endpoints: int) -> dict[str, Any]:
    """Return the medians for one number of endpoints."""
    thousands = round(SLOTS * endpoints * PER_SLOT) / 1000
    ours, bare, raced = (ran[way] for way in ("ours", "bare", "raced"))
    return {
        "in_flight": SLOTS * endpoints,
        "busy": round(statistics.median(one.busy for one in ours), 4),
        "busy_vs_bare": round(paired([one.busy for one in ours], [one.busy for one in bare]), 4),
        "raced_vs_bare": round(paired([one.busy for one in raced], [one.busy for one in bare]), 4),
        "filled_s": {way: round(statistics.median(one.filled_s for one in found), 2) for way, found in ran.items()},
        "cpu_s_per_1000": {
            way: round(statistics.median(one.cpu_s for one in found) / thousands, 3) for way, found in ran.items()
        },
        "memory_mb_per_1000": {
            way: round(statistics.median(one.memory_mb for one in found) / thousands, 1) for way, found in ran.items()
        },
    }


def main() -> int:
    """Measure, end with the line of JSON; 0 when every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="through the most endpoints; the fewer take one round")
    arguments = parser.parse_args()
    most = max(ENDPOINTS)
    ran = {count: steady(count, arguments.rounds if count == most else 1) for count in ENDPOINTS}
    by_endpoints = {count: summary(found, count) for count, found in ran.items()}
    started = {way: [one.started_s for one in found] for way, found in ran[most].items()}
    growth = journal_growth.measure()
    figures = {
        "busy_vs_bare": by_endpoints[most]["busy_vs_bare"],
        "raced_vs_bare": by_endpoints[most]["raced_vs_bare"],
        "journal_share": round(paired(started["ours"], started["unrecorded"]) - 1, 4),
        "journal_growth": round(growth.ratio, 3),
    }
    print(
        json.dumps(
            {
                **figures,
                "limits": AT_LEAST | AT_MOST,
                "endpoints": by_endpoints,
                "journal_ms_per_example": growth.milliseconds,
                "full_speed_ms_per_example": full_speed(3),
                "rounds": arguments.rounds,
            }
        )
    )
    kept = all(figures[name] >= limit for name, limit in AT_LEAST.items())
    return int(not kept or any(figures[name] > limit for name, limit in AT_MOST.items()))


if __name__ == "__main__":
    sys.exit(main())
