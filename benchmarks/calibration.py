"""How often a run's result is luck: what the certificate, GEPA's own rule and one standard error make of known truths.

Every run is real GEPA through the remote adapter, against a server of a program whose true scores are known
(`benchmarks/luck_program.py`). A scripted model proposes texts: in A/A runs with the seed's own skills, so that no
proposal is truly better; in the others with skills that differ at random and are a little better on average. Half of
each kind of runs is noisy. The best candidate and the seed are then scored on fresh test rows.

- Certificate: its own rule (`gepa_client/certificate/sealed_test.py`) on the test rows, opened once.
- Coverage: of the 95 % interval of `paired.compare`.
- Winner's curse: validation score less true score of the best candidate, before and after `shrinkage.shrink`.
- Power: a candidate that is truly 5 points better is compared on as many test rows as `check` asks for, whose figure
  comes from 15 rows that are evaluated twice.

The last line is JSON; the exit status is 1 if a limit is missed.
"""

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gepa.api import optimize  # noqa: E402

from benchmarks.luck_program import KINDS, rows, skills_of, text_of, truth  # noqa: E402
from gepa_client import ConcurrentReflection, RemoteAdapter, Row, RowLoader  # noqa: E402
from gepa_client.analysis import best_score_estimate as shrinkage  # noqa: E402
from gepa_client.analysis import paired_comparison as paired  # noqa: E402
from gepa_client.certificate.verdict import allowed_error, judge  # noqa: E402
from gepa_client.check.run_forecast import NoiseReport  # noqa: E402
from sandbox_runtime import running_server  # noqa: E402

SERVER = str(Path(sys.executable).with_name("gepa-server"))
TRAIN, TEST = 100, 100
METRIC_CALLS = {40: 400, 100: 1000}
"""By the number of validation rows."""
NOISE = 0.7
NOISY_REPEATS = 2
GAIN = 0.05
CHECKED_ROWS, CHECKED_REPEATS = 15, 2
SPREAD, STEP, DRIFT, CHANGED = 0.5, 0.5, 0.1, 0.4
"""Of a seed's skills; of a change of one, its mean, and the chance that a proposal changes it."""
LIMITS = {"aa_improved": 0.05, "uncovered": 0.06, "curse_left": 0.333, "certified": 0.8}

Where = tuple[str, str]
"""The URL and the token of the server."""


@dataclass(frozen=True)
class Task:
    """A kind of runs. `changes`: whether proposals have other skills than their parent; `val`: validation rows."""

    changes: bool
    noise: float
    val: int

    @property
    def name(self) -> str:
        """A name for people."""
        return (
            f"{'gains' if self.changes else 'A/A'}, {'noisy' if self.noise else 'no noise'}, {self.val} validation rows"
        )


@dataclass(frozen=True)
class Outcome:
    """One run. `chosen`: whether its best candidate is not the seed. `true_gain`: of the best over the seed.

    `raw`, `shrunk`: validation scores of the best. `seed_error`: how far that of the seed, which was not chosen, is
    from the truth.
    """

    chosen: bool
    val_went_up: bool
    beyond_one_se: bool
    improved: bool
    covered: bool
    compared: int
    true_gain: float
    true_best: float
    raw: float
    shrunk: float
    shrunk_covered: bool
    seed_error: float


class _Quiet:
    """GEPA's log, unread."""

    def log(self, message: str) -> None:
        del message


class Proposer:
    """A reflection model that changes the skills in the prompt; not at all in A/A runs."""

    def __init__(self, seed: int, *, changes: bool) -> None:
        self._random = random.Random(seed)  # noqa: S311  # for choosing, not for secrets
        self._changes = changes
        self._number = 0

    def __call__(self, prompt: Any) -> str:
        """Return a new text."""
        self._number += 1
        skills = skills_of(prompt if isinstance(prompt, str) else prompt[-1]["content"])
        if self._changes:
            skills = [
                skill + (self._random.gauss(DRIFT, STEP) if self._random.random() < CHANGED else 0.0)
                for skill in skills
            ]
        return f"```\n{text_of(self._number, skills)}\n```"


def seed_text(seed: int) -> str:
    """Return a run's seed candidate."""
    drawn = random.Random(-seed - 1)  # noqa: S311
    return text_of(0, [drawn.gauss(0, SPREAD) for _ in range(KINDS)])


def loader(found: Sequence[Any], first_id: int = 0) -> RowLoader:
    """Return rows as GEPA loads them."""
    return RowLoader([Row(str(first_id + at), data) for at, data in enumerate(found)], first_id)


def scored(adapter: RemoteAdapter, part: str, text: str, data: Sequence[Any], repeats: int = 1) -> list[list[float]]:
    """Return the scores of a candidate by row and repeat; `part` names them apart from others of the run."""
    given = [Row(str(at), each) for at, each in enumerate(data)]
    found = [adapter.score_rows(f"{part}-{at}", {"text": text}, given).scores for at in range(repeats)]
    return [list(each) for each in zip(*found, strict=True)]


def run(where: Where, seed: int, task: Task) -> Outcome:
    """Optimize once, and score the seed and the best candidate on fresh rows."""
    noise, val = task.noise, task.val
    with RemoteAdapter(where[0], token=where[1], seed=seed) as adapter:
        callbacks: list[Any] = [*adapter.callbacks]
        result = optimize(
            seed_candidate={"text": seed_text(seed)},
            trainset=loader(rows(seed, TRAIN, noise)),
            valset=loader(rows(seed, val, noise, TRAIN), TRAIN),
            adapter=adapter,
            reflection_strategy=ConcurrentReflection(Proposer(seed, changes=task.changes)),
            callbacks=callbacks,
            max_metric_calls=METRIC_CALLS[val],
            seed=seed,
            logger=_Quiet(),
        )
        first, best = result.candidates[0]["text"], result.candidates[result.best_idx]["text"]
        test, repeats = rows(seed, TEST, noise, TRAIN + val), NOISY_REPEATS if noise else 1
        of_seed, of_best = (
            scored(adapter, part, text, test, repeats) for part, text in (("seed", first), ("best", best))
        )
    by_row = [[scores[at] for at in sorted(scores)] for scores in result.val_subscores]
    raw, seed_raw = fmean(by_row[result.best_idx]), fmean(by_row[0])
    shrunk = shrinkage.shrink(by_row, result.best_idx)
    compared = paired.compare(of_seed, of_best)
    gain = truth(best, noise) - truth(first, noise)
    return Outcome(
        chosen=result.best_idx != 0,
        val_went_up=raw > seed_raw,
        beyond_one_se=raw - seed_raw > stdev(by_row[result.best_idx]) / math.sqrt(val),
        improved=judge(of_seed, of_best)[0] == "improved",
        covered=compared.low <= gain <= compared.high,
        compared=len(by_row),
        true_gain=gain,
        true_best=truth(best, noise),
        raw=raw,
        shrunk=shrunk.estimate,
        shrunk_covered=shrunk.low <= truth(best, noise) <= shrunk.high,
        seed_error=abs(seed_raw - truth(first, noise)),
    )


def certified(where: Where, seed: int, noise: float) -> tuple[int, bool]:
    """Return how many test rows `check` asks for to show a gain of 5 points, and whether they show one."""
    first = seed_text(seed)
    low, high = 0.0, 2.0
    while high - low > 1e-5:  # as much more of each skill as gains 5 points
        middle = (low + high) / 2
        better = text_of(1, [skill + middle for skill in skills_of(first)])
        low, high = (middle, high) if truth(better, noise) - truth(first, noise) < GAIN else (low, middle)
    with RemoteAdapter(where[0], token=where[1], seed=seed) as adapter:
        tried = scored(adapter, "check", first, rows(seed, CHECKED_ROWS, noise), CHECKED_REPEATS)
        report = NoiseReport.of(tried, identical=True, validation_rows=100, test_rows=None)
        [needed] = [each.rows for each in report.needed if each.gain == GAIN]
        assert needed is not None
        test = rows(seed, needed, noise, CHECKED_ROWS)
        verdict, _ = judge(scored(adapter, "seed", first, test), scored(adapter, "best", better, test))
    return needed, verdict == "improved"


@contextmanager
def served() -> Iterator[Any]:
    """Serve the program while the block runs."""
    seed = json.dumps({"text": text_of(0, [0.0] * KINDS)})
    command = [SERVER, "--adapter", "benchmarks.luck_program:LuckAdapter", "--seed-candidate", seed]
    with running_server(command, cwd=ROOT) as server:
        yield server


def share(flags: Iterable[bool]) -> float:
    """Return how many of the flags are set, as a share."""
    return round(fmean(flags), 4)


def measured(found: Mapping[Task, Sequence[Outcome]], power: Sequence[tuple[int, bool]]) -> dict[str, Any]:
    """Return the figures. A run whose best candidate is the seed compares nothing: it counts as not improved alone."""
    alike = [each for task, runs in found.items() if not task.changes for each in runs]
    changed = [each for task, runs in found.items() if task.changes for each in runs]
    covered = {
        name: [each.covered for each in runs if each.chosen] for name, runs in (("aa", alike), ("gain", changed))
    }
    tasks = {task.name: _luck(runs) for task, runs in found.items()}
    coverage = share(covered["aa"] + covered["gain"])
    by_task = list(tasks.values())
    return {
        "aa_improved": share(each.improved for each in alike),
        "uncovered": round(1 - coverage, 4),
        "curse_left": round(_mean(by_task, "shrunk_luck", abs) / _mean(by_task, "raw_luck", abs), 3),
        "certified": share(shown for _, shown in power),
        "limits": LIMITS,
        "aa_runs": len(alike),
        "aa_val_went_up": share(each.val_went_up for each in alike),
        "aa_beyond_one_se": share(each.beyond_one_se for each in alike),
        "coverage": coverage,
        "coverage_by_kind": {name: share(flags) for name, flags in covered.items()},
        "gain_runs": len(changed),
        "gain_improved": share(each.improved for each in changed),
        "mean_true_gain": round(fmean(each.true_gain for each in changed), 4),
        "error_left": round(_mean(by_task, "shrunk_error") / _mean(by_task, "raw_error"), 3),
        "error_of_unchosen": round(_mean(by_task, "seed_error") / _mean(by_task, "raw_error"), 3),
        "shrunk_coverage": share(each.shrunk_covered for each in alike + changed),
        "tasks": tasks,
        "certified_runs": len(power),
        "error": allowed_error(1),
        "certified_rows": round(fmean(needed for needed, _ in power)),
    }


def _luck(runs: Sequence[Outcome]) -> dict[str, float]:
    """Return how far the best candidate's validation score and its shrunk one are from the truth, in one task."""
    raw = [each.raw - each.true_best for each in runs]
    shrunk = [each.shrunk - each.true_best for each in runs]
    return {
        "candidates": round(fmean(each.compared for each in runs), 1),
        "raw_luck": round(fmean(raw), 4),
        "shrunk_luck": round(fmean(shrunk), 4),
        "raw_error": round(fmean(map(abs, raw)), 4),
        "shrunk_error": round(fmean(map(abs, shrunk)), 4),
        "seed_error": round(fmean(each.seed_error for each in runs), 4),
    }


def _mean(tasks: Sequence[Mapping[str, float]], key: str, of: Callable[[float], float] = float) -> float:
    return fmean(of(task[key]) for task in tasks)


def main() -> int:
    """Measure, end with the line of JSON; 0 if every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="of each kind")
    parser.add_argument("--certified", type=int, default=300, help="comparisons of a gain of 5 points")
    arguments = parser.parse_args()
    tasks = [Task(changes, noise, val) for changes in (False, True) for val in METRIC_CALLS for noise in (0.0, NOISE)]
    each = arguments.runs * 2 // len(tasks)
    found: dict[Task, list[Outcome]] = {}
    with served() as server, ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        where = (server.url, server.token)
        for number, task in enumerate(tasks):
            seeds = range(number * each, (number + 1) * each)
            found[task] = list(pool.map(run, repeat(where), seeds, repeat(task), chunksize=5))
            print(f"{task.name}: {each} runs, {share(one.improved for one in found[task])} improved", flush=True)
        seeds = range(arguments.certified)
        power = list(pool.map(certified, repeat(where), seeds, [seed % 2 * NOISE for seed in seeds], chunksize=5))
    figures = measured(found, power)
    print(json.dumps(figures))
    return int(
        any(figures[key] > limit for key, limit in LIMITS.items() if key != "certified")
        or figures["certified"] < LIMITS["certified"]
    )


if __name__ == "__main__":
    sys.exit(main())
