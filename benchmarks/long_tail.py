"""1,000 examples of log-normal length, 64 at once, recorded: how near a sliding window comes to what is possible.

No order of the examples can take less than the longest of them, nor less than their sum shared by the slots. The figure
is the median over rounds of wall time over that bound. Beside it, computed and not run: the same order through a window
that costs nothing, through chunks of 8, and in waves of 64. The last line is JSON; the exit status is 1 where the limit
is missed.
"""

import argparse
import heapq
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import hashed_task, ours, stub_endpoints  # noqa: E402  the repository is not a package
from gepa_client import Row  # noqa: E402

SLOTS = 64
EXAMPLES = 1000
SIGMA = 0.5
SEED = 0
SHARE_S = 7.0
"""Seconds that the sum of all lengths makes for each slot."""

CHUNK = 8
LIMITS = {"vs_bound": 1.15}


HEAVIER = (0.6, 0.8, 1.0)
"""Other sigmas, computed for comparison: how far the luck with the order alone reaches."""


def lengths(sigma: float = SIGMA) -> list[float]:
    """Seconds of each example, in the order asked."""
    source = random.Random(SEED)  # noqa: S311  a benchmark's data, no secret
    drawn = [source.lognormvariate(0.0, sigma) for _ in range(EXAMPLES)]
    factor = SHARE_S * SLOTS / sum(drawn)
    return [factor * length for length in drawn]


def window(seconds: Sequence[float], width: int) -> float:
    """How long a sliding window takes: the next in order starts whenever one ends."""
    ends = [0.0] * width
    for length in seconds:
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


def groups(seconds: Sequence[float], size: int) -> list[float]:
    """How long each group of neighbours takes when all of it runs at once."""
    return [max(seconds[start : start + size]) for start in range(0, len(seconds), size)]


def measure(seconds: Sequence[float], rounds: int) -> list[float]:
    """Wall seconds of each round through our adapter, each with a store of its own."""
    rows = [
        Row(str(data["number"]), {**data, "seconds": length})
        for data, length in zip(hashed_task.rows(EXAMPLES, 0.0), seconds, strict=True)
    ]
    taken = []
    with stub_endpoints.running(1, SLOTS) as stubs:
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder, ours.adapter(stubs.urls, Path(folder) / "runs.db") as adapter:
                started = time.perf_counter()
                [batch] = adapter.batch_evaluate([(hashed_task.SEED_CANDIDATE, rows)], False)
                taken.append(time.perf_counter() - started)
            expected = [hashed_task.score(hashed_task.SEED_CANDIDATE, row.data) for row in rows]
            assert batch.scores == expected, "wrong scores, or in another order"
            print(f"{taken[-1]:.2f} s", flush=True)
    return taken


def main() -> int:
    """Measure, end with the line of JSON; 0 when the limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    seconds = lengths()
    bound = max(sum(seconds) / SLOTS, max(seconds))
    taken = measure(seconds, arguments.rounds)
    figures = {
        "vs_bound": round(statistics.median(taken) / bound, 3),
        "limits": LIMITS,
        "computed": {
            "window": round(window(seconds, SLOTS) / bound, 3),
            f"chunks of {CHUNK}": round(window(groups(seconds, CHUNK), SLOTS // CHUNK) / bound, 3),
            f"waves of {SLOTS}": round(sum(groups(seconds, SLOTS)) / bound, 3),
        },
        "computed_window_by_sigma": {
            f"{sigma:g}": round(window(tail, SLOTS) / max(sum(tail) / SLOTS, max(tail)), 3)
            for sigma in HEAVIER
            for tail in [lengths(sigma)]
        },
        "examples": EXAMPLES,
        "sigma": SIGMA,
        "bound_seconds": round(bound, 2),
        "longest_seconds": round(max(seconds), 2),
        "seconds": round(statistics.median(taken), 2),
        "rounds": arguments.rounds,
    }
    print(json.dumps(figures))
    return int(statistics.median(taken) / bound > LIMITS["vs_bound"])


if __name__ == "__main__":
    sys.exit(main())
