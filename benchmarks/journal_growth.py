"""What the journal costs per example in a run's first 1,000 and beyond its first 20,000, fed by itself.

It is fed as a run's window feeds it, with no server and no wire: an iteration asks for minibatches and a validation
set, each example is recorded as sent before it would be, then with its result, and GEPA waits until all is in the
store. A long run and fresh ones take turns, an iteration each.
"""

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import hashed_task, ours
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import digest_of, evaluate_key
from protocol import JsonValue

FRESH, LONG = 1000, 20_000
AT_ONCE = 64
ITERATION = (24, 24, 200)
"""Examples of the evaluations of an iteration: parents' minibatches, children's, a validation set of 200 rows."""

FRESH_RUNS = 12
RESULT: dict[str, JsonValue] = {"status": "ok", "score": 0.5, "output": "team 3", "seconds": 4.0}


@dataclass(frozen=True)
class Growth:
    """`ratio`: per example of the long run over a fresh one. `milliseconds`: `early` and `late`, per example."""

    ratio: float
    milliseconds: dict[str, float]


def measure() -> Growth:
    """Grow a run to 20,000 examples, then let it take turns with fresh ones; medians over the turns."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_turns(Path(folder)))


async def _turns(folder: Path) -> Growth:
    early, late = [], []
    with ours.journal(folder / "long.db") as grown:
        far = _Feeder(grown)
        while grown.next_number < LONG:
            await far.iteration()
        for run in range(FRESH_RUNS):
            with ours.journal(folder / f"fresh-{run}.db") as fresh:
                near = _Feeder(fresh)
                while fresh.next_number + sum(ITERATION) <= FRESH:
                    early.append(await near.iteration())
                    late.append(await far.iteration())
    return Growth(
        ratio=statistics.median(b / a for a, b in zip(early, late, strict=True)),
        milliseconds={
            name: round(statistics.median(taken) * 1000, 4) for name, taken in (("early", early), ("late", late))
        },
    )


class _Feeder:
    """Asks one journal for what a run would ask for."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._candidates: Iterator[int] = itertools.count()
        data = hashed_task.rows(max(ITERATION), 0.0)
        self._rows = [digest_of({"id": str(row["number"]), "data": row}) for row in data]

    async def iteration(self) -> float:
        """Seconds per example."""
        seconds = 0.0
        for size in ITERATION:
            candidate = digest_of({**hashed_task.SEED_CANDIDATE, "triage": f"Rules {next(self._candidates)}"})
            requests = [evaluate_key(candidate, self._rows[at], str(at), False) for at in range(size)]
            started = time.perf_counter()
            await _evaluate(self._journal, requests)
            seconds += time.perf_counter() - started
        return seconds / sum(ITERATION)


async def _evaluate(journal: Journal, requests: list[Any]) -> None:
    slots = journal.ask(requests)
    waiting = iter(slots)

    async def work() -> None:
        for slot in waiting:
            attempts = journal.attempts(slot, "evaluate")
            await attempts.start("http://127.0.0.1:1", "instance", repeat=False)
            attempts.finish("ok", seconds=4.0)
            journal.record((slot, RESULT))

    with journal.executing(slots):
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        await journal.settled()
