"""How often `--stop-when-certain` ends a search too early: simulated runs of GEPA, stopped by their record.

A candidate has a skill for each group of rows, a proposal changes two of them, and a score of 0 or 1 is fixed by
candidate and row. Each run continues to its whole budget; where the rule would end it is noted.
"""

import argparse
import functools
import hashlib
import json
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch

from gepa_client.run.stoppers import CertainStop

GROUPS = 10


@dataclass(frozen=True)
class Landscape:
    """`rows`: of validation. `step`: how much a proposal changes a skill, on average, and how much that varies."""

    name: str
    rows: int
    budget: int
    step: tuple[float, float]


LANDSCAPES = (
    Landscape("100 rows, easy", 100, 3000, (0.1, 0.5)),
    Landscape("100 rows, hard", 100, 3000, (-0.3, 0.5)),
    Landscape("300 rows, easy", 300, 6000, (0.1, 0.5)),
    Landscape("40 rows, hard", 40, 1500, (-0.3, 0.5)),
)


class Simulated:
    """A GEPA adapter and its reflection."""

    propose_new_texts: Any = None

    def __init__(self, step: tuple[float, float], seed: int) -> None:
        self._step, self._rng, self._seed = step, random.Random(seed), seed  # noqa: S311 - repeatable runs

    def evaluate(self, batch: Sequence[int], candidate: Mapping[str, str], capture_traces: bool = False) -> Any:
        """Score rows."""
        skills = json.loads(candidate["skills"])
        scores = [float(_luck(self._seed, candidate["skills"], row) < chance(skills, row)) for row in batch]
        traces = list(scores) if capture_traces else None
        return EvaluationBatch(outputs=list(scores), scores=scores, trajectories=traces)

    def make_reflective_dataset(self, _candidate: Any, _batch: Any, components: list[str]) -> dict[str, Any]:
        """Return nothing to read."""
        return {name: [{"Feedback": ""}] for name in components}

    def propose(self, candidate: Mapping[str, str], _dataset: Any, _components: Any) -> dict[str, str]:
        """Change two skills."""
        skills = json.loads(candidate["skills"])
        for group in self._rng.sample(range(GROUPS), 2):
            skills[group] = round(skills[group] + self._rng.gauss(*self._step), 3)
        return {"skills": json.dumps(skills)}


def chance(skills: Sequence[float], row: int) -> float:
    """Return the chance of a score of 1."""
    difficulty = _luck(0, "difficulty", row) * 3 - 0.5
    return 1 / (1 + math.exp(difficulty - skills[row % GROUPS]))


def quality(skills: Sequence[float]) -> float:
    """Return the mean chance over many rows."""
    return statistics.fmean(chance(skills, row) for row in range(10_000, 10_400))


@functools.cache
def _luck(*parts: Any) -> float:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=7).digest(), "big") / 2**56


class _Quiet:
    def log(self, _message: str) -> None:
        """Log nothing."""


class _Recorder:
    """Applies the rule between iterations, notes where it would have stopped, and stops nothing."""

    def __init__(self, gain: float, budget: int) -> None:
        self._rule = CertainStop(gain, budget, None)
        self.stopped: tuple[int, int, float] | None = None

    def __call__(self, gepa_state: Any) -> bool:
        if self.stopped is None and self._rule(gepa_state):
            scores = gepa_state.program_full_scores_val_set
            best = scores.index(max(scores))
            self.stopped = gepa_state.total_num_evals, best, scores[best]
        return False


def simulated(landscape: Landscape, seed: int, gain: float) -> tuple[float, float, float] | None:
    """Return the share of the budget at the stop, and what the rest gained on validation and truly; None: no stop."""
    adapter, recorder = Simulated(landscape.step, seed), _Recorder(gain, landscape.budget)
    result: Any = optimize(
        seed_candidate={"skills": json.dumps([0.0] * GROUPS)},
        trainset=list(range(1000, 1100)),
        valset=list(range(landscape.rows)),
        adapter=adapter,
        custom_candidate_proposer=adapter.propose,  # type: ignore[arg-type]
        max_metric_calls=landscape.budget,
        stop_callbacks=[recorder],
        logger=_Quiet(),
        seed=seed,
    )
    if recorder.stopped is None:
        return None
    calls, best, score = recorder.stopped
    last = quality(json.loads(result.candidates[result.best_idx]["skills"]))
    then = quality(json.loads(result.candidates[best]["skills"]))
    return calls / landscape.budget, max(result.val_aggregate_scores) - score, last - then


def main() -> int:
    """Print a line for each landscape and gain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    seeds = range(parser.parse_args().seeds)
    print("landscape | gain | runs stopped | of the budget | validation loses more | truly loses more")
    with ProcessPoolExecutor(parser.parse_args().jobs) as pool:
        for landscape in LANDSCAPES:
            for gain in (0.01, 0.03):
                runs = list(pool.map(simulated, [landscape] * len(seeds), seeds, [gain] * len(seeds)))
                ended = [run for run in runs if run is not None]
                share = statistics.fmean(run[0] if run is not None else 1.0 for run in runs)
                lost = [sum(run[which] > gain for run in ended) / len(runs) for which in (1, 2)]
                print(
                    f"{landscape.name} | {gain:g} | {len(ended)} of {len(runs)} | {share:.2f} | {lost[0]:.3f} | "
                    f"{lost[1]:.3f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
