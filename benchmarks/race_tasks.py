"""The tasks of `sample_efficiency.py`, each with its program, its rows by seed, and the quality of a candidate.

Programs, rows, minibatches and budgets were chosen before any raced run was seen. All else is GEPA's default.
"""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import tickets

from benchmarks import landscape, word_weights

ROOT = Path(__file__).resolve().parent.parent
BANKING77 = ROOT.parent / "shared" / "data" / "banking77"
TICKETS = ROOT / "examples" / "tickets"

Candidate = Mapping[str, str]
Data = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """Of one seed. `quality`: of a candidate, on what neither proposals nor selection see."""

    train: list[Data]
    val: list[Data]
    quality: Callable[[Candidate], float]


@dataclass(frozen=True)
class Task:
    """What is optimized, with `metric_calls` as the budget.

    `noisy`: the program gives a candidate another score on the same row each time.
    """

    program: ModuleType
    rows: Callable[[int], Rows]
    minibatch: int
    metric_calls: int
    noisy: bool = False

    @property
    def missing(self) -> str | None:
        """Why the task cannot run; None if it can."""
        uses_banking77 = self.program is word_weights and not BANKING77.is_dir()
        return f"no data in {BANKING77}" if uses_banking77 else None


def _simulated(val: int, *, noisy: bool = False) -> Callable[[int], Rows]:
    """Rows of a world of its own for each seed; the quality is exact."""

    def rows(seed: int) -> Rows:
        made = [landscape.row(str(seed), number, noisy=noisy) for number in range(200 + val)]
        return Rows(made[:200], made[200:], landscape.quality)

    return rows


def _split(program: ModuleType, folder: Path, files: tuple[str, ...], train: int, val: int) -> Callable[[int], Rows]:
    """Rows of all files together, shuffled by the seed; the quality is the mean score on those left over."""

    def rows(seed: int) -> Rows:
        texts = [line for name in files for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        found = [json.loads(text) for text in texts]
        random.Random(seed).shuffle(found)  # noqa: S311  rows, no secret
        held_out = found[train + val :]

        def quality(candidate: Candidate) -> float:
            scores = [program.score(data, program.run(data, candidate))[0] for data in held_out]
            return float(sum(scores) / len(scores))

        return Rows(found[:train], found[train : train + val], quality)

    return rows


TEN = ("ten_train.jsonl", "ten_val.jsonl", "ten_test.jsonl")
ALL = ("full_train.jsonl", "full_val.jsonl")
MESSAGES = ("train.jsonl", "val.jsonl", "test.jsonl")

TASKS: dict[str, Task] = {
    "landscape_300": Task(landscape, _simulated(300), 3, 6000),
    "landscape_300_noisy": Task(landscape, _simulated(300, noisy=True), 3, 6000, noisy=True),
    "banking77_all": Task(word_weights, _split(word_weights, BANKING77, ALL, 2000, 300), 20, 6000),
    "landscape_100": Task(landscape, _simulated(100), 3, 4000),
    "banking77_ten": Task(word_weights, _split(word_weights, BANKING77, TEN, 400, 100), 20, 2000),
    "tickets": Task(tickets, _split(tickets, TICKETS / "data", MESSAGES, 100, 100), 20, 2000),
}
