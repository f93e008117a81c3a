"""The metric calls that racing needs for the held-out quality that the best run without it has at its budget.

    python benchmarks/sample_efficiency.py [TASK ...] [--seeds N] [--kept FILE]

For each task and seed GEPA runs once with each of `ARMS`, at the whole budget. `race` runs through the whole client as
`evolverpc optimize` drives it, over HTTP to a server of the program. All other arms are baselines: what a user can
choose without racing. They run in one process; those of the first seed run through the client too, and the benchmark
fails if these differ. The quality of a run after so many metric calls is that of its best candidate by then, on rows
that neither proposals nor selection see. A raced run compares its best candidate with the seed after the search: these
calls are added to each point of its curve, which keeps the best candidate of the search.

An arm reaches a quality at the first number of calls at which the mean over seeds is at least that. The goal of a task
is the highest mean that a baseline has at the whole budget; its ratio, the calls at which `race` reaches the goal over
the fewest at which a baseline does. There is no ratio if `race` does not reach the goal within the budget. The interval
is a bootstrap over seeds, with the goal and the fewest calls of each draw. FILE keeps each run as a line of JSON and is
continued. The last line is JSON; the exit status is 1 where a limit is missed.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "tickets" / "python")]

from benchmarks.plain_gepa import best_candidates  # noqa: E402  the repository is not a package
from benchmarks.race_tasks import TASKS, Rows, Task  # noqa: E402
from gepa_client.foreground.run_starts import create_run  # noqa: E402
from gepa_client.journal.run_events import CandidateFound, Event, Finished, TiesCompared  # noqa: E402
from gepa_client.run.control_messages import DriverJob  # noqa: E402
from gepa_client.run.driver import drive  # noqa: E402
from gepa_client.run.gateway_record import GatewayRecord  # noqa: E402
from gepa_client.settings.run_config import RunConfig  # noqa: E402
from gepa_client.transport.event_loop import CancelToken  # noqa: E402
from sandbox_runtime import ServerEndpoint, running_server  # noqa: E402

SEEDS = range(330_000, 330_020)
"""No program, default, rule or budget was chosen by runs of these: GEPA's seed, and that of a task's rows."""

SLOTS = 4
RACE = "race"
FEW_ROWS = 40
"""Validation rows of the baselines that have few: as many as a race samples."""


@dataclass(frozen=True)
class Arm:
    """One way to run. `settings`: beside those of the task; `val_rows`: the first of the task's, which are random."""

    settings: Mapping[str, Any]
    val_rows: int | None = None


CURRENT_BEST = {"candidate_selection_strategy": "current_best"}
ARMS = {
    "full": Arm({}),
    "full_current_best": Arm(CURRENT_BEST),
    "few_rows": Arm({}, FEW_ROWS),
    "few_rows_current_best": Arm(CURRENT_BEST, FEW_ROWS),
    RACE: Arm({"validation": "race"}),
}

QUARTERS = (0.25, 0.5, 0.75, 1.0)
RESAMPLES = 2000
WITHIN, ABOVE = 0.75, 1.05
"""Of the ratio: what it is to be at most on most tasks, and on all."""

LIMITS = {"tasks_within": 4, "tasks_above": 0}

Curve = list[tuple[int, float]]
"""(metric calls, held-out quality) whenever a run has a new best candidate, the seed candidate first."""


def by_the_client(server: ServerEndpoint, task: Task, rows: Rows, seed: int, arm: str, folder: Path) -> Curve:
    """Optimize once through the client, recorded in a store of its own.

    Raises:
        SystemExit: the run failed.
    """
    token = folder / "token"
    token.write_text(server.token, encoding="utf-8")
    settings = RunConfig(
        url=[server.url],
        token_file=str(token),
        trainset=rows.train,
        valset=rows.val[: ARMS[arm].val_rows],
        reflection_minibatch_size=task.minibatch,
        max_metric_calls=task.metric_calls,
        seed=seed,
        output=folder / "results",
        **ARMS[arm].settings,
    )
    store, run_id = str(folder / "runs.db"), uuid.uuid4().hex
    create_run(settings, store, run_id)
    config = settings.model_dump(mode="json", exclude_unset=True)
    job = DriverJob(store=store, run_id=run_id, owner=uuid.uuid4().hex, config=config, output=None)
    events: list[Event] = []
    with Path(os.devnull).open("w", encoding="utf-8") as log, contextlib.redirect_stdout(log):
        drive(job, events.append, CancelToken(), lambda: None, GatewayRecord())
    ended = events[-1]
    if not isinstance(ended, Finished) or ended.status != "completed":
        raise SystemExit(f"sample_efficiency: {arm}, seed {seed}: {ended}")
    found = [event for event in events if isinstance(event, CandidateFound)]
    after = sum(each.rows * len(each.candidates) for each in events if isinstance(each, TiesCompared))
    return [(each.metric_calls + after, rows.quality(each.texts)) for each in found if each.best == each.index]


def in_one_process(task: Task, rows: Rows, seed: int, arm: str) -> Curve:
    """Optimize once without a server."""
    found = best_candidates(
        task.program,
        rows.train,
        rows.val[: ARMS[arm].val_rows],
        reflection_minibatch_size=task.minibatch,
        max_metric_calls=task.metric_calls,
        seed=seed,
        **ARMS[arm].settings,
    )
    return [(calls, rows.quality(texts)) for calls, texts in found]


def run(server: ServerEndpoint, task: Task, seed: int, arm: str) -> Curve:
    """Optimize once, a baseline of the first seed twice.

    Raises:
        SystemExit: the client's run failed, or is not that of one process.
    """
    rows = task.rows(seed)
    plain = None if arm == RACE else in_one_process(task, rows, seed, arm)
    if plain is not None and (seed != SEEDS[0] or task.noisy):
        return plain
    with tempfile.TemporaryDirectory() as folder:
        found = by_the_client(server, task, rows, seed, arm, Path(folder))
    if plain is not None and plain != found:
        raise SystemExit(f"sample_efficiency: {arm}, seed {seed}: the client's run is not that of one process")
    return found


@contextlib.contextmanager
def served(task: Task) -> Iterator[ServerEndpoint]:
    """Serve the program while the block runs."""
    command = [str(Path(sys.executable).with_name("gepa-server")), "--python", sys.executable]
    command += ["--program", str(task.program.__file__), "--workers", "1", "--concurrency", str(SLOTS)]
    with running_server(command, cwd=ROOT) as server:
        yield server


# --- figures ---------------------------------------------------------------------------------------------------------


def quality_at(curve: Curve, calls: float) -> float:
    """Return the quality of the best candidate after so many calls; that of the seed candidate before it is scored."""
    return [quality for at, quality in curve if at <= calls][-1] if curve[0][0] <= calls else curve[0][1]


Steps = list[tuple[int, list[float]]]
"""(metric calls, quality of each run) wherever one of the runs has a new best candidate, and at the budget."""


def steps_of(curves: Sequence[Curve], budget: int) -> Steps:
    """Return the curves of one arm side by side."""
    places = sorted({at for curve in curves for at, _ in curve if at < budget} | {budget})
    return [(calls, [quality_at(curve, calls) for curve in curves]) for calls in places]


def reached(steps: Steps, counts: Sequence[int], goal: float) -> int | None:
    """Return the calls at which the sum of qualities, each run as often as it counts, is first at least the goal."""
    return next((calls for calls, found in steps if total(found, counts) >= goal), None)


def total(qualities: Sequence[float], counts: Sequence[int]) -> float:
    """Return the sum of qualities, each as often as it counts."""
    return float(sum(map(mul, qualities, counts)))


def calls_of(arms: Mapping[str, Steps], counts: Sequence[int]) -> dict[str, int | None]:
    """Return the calls at which each arm reaches the goal; None if it never does within the budget."""
    goal = max(total(steps[-1][1], counts) for arm, steps in arms.items() if arm != RACE)
    return {arm: reached(steps, counts, goal) for arm, steps in arms.items()}


def ratio_of(calls: Mapping[str, int | None]) -> float | None:
    """Return the calls of `race` over the fewest of a baseline; None if it never reaches the goal."""
    fewest = min(found for arm, found in calls.items() if arm != RACE and found is not None)
    raced = calls[RACE]
    return None if raced is None else raced / fewest


def interval(arms: Mapping[str, Steps], seeds: int) -> list[float | None]:
    """Return the 95 % interval of the ratio; an end is None if the goal is not reached."""
    source = random.Random(0)  # noqa: S311  resampling, no secret
    draws = []
    for _ in range(RESAMPLES):
        drawn = Counter(source.choices(range(seeds), k=seeds))
        draws.append(ratio_of(calls_of(arms, [drawn[at] for at in range(seeds)])))
    ordered = sorted(draws, key=lambda ratio: float("inf") if ratio is None else ratio)
    return [ordered[round(part * (RESAMPLES - 1))] for part in (0.025, 0.975)]


def figures_of(task: Task, curves: Mapping[str, Sequence[Curve]]) -> dict[str, Any]:
    """Return what one task gives; `curves` by arm. The `quality` is the mean after quarters of the budget."""
    budget, seeds = task.metric_calls, len(curves[RACE])
    arms = {arm: steps_of(runs, budget) for arm, runs in curves.items()}
    calls = calls_of(arms, [1] * seeds)
    quality = {
        arm: [round(sum(quality_at(run, budget * part) for run in runs) / seeds, 4) for part in QUARTERS]
        for arm, runs in curves.items()
    }
    return {
        "seeds": seeds,
        "metric_calls": budget,
        "ratio": ratio_of(calls),
        "interval": interval(arms, seeds),
        "arms": {arm: {"calls": calls[arm], "quality": quality[arm]} for arm in arms},
    }


# --- runs ------------------------------------------------------------------------------------------------------------


def kept_runs(file: Path | None) -> dict[tuple[str, int, str], Curve]:
    """Return the curves by task, seed and arm that a file has."""
    if file is None or not file.exists():
        return {}
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {(line["task"], line["seed"], line["arm"]): line["curve"] for line in lines}


def measure(name: str, seeds: Sequence[int], kept: Path | None) -> dict[str, list[Curve]]:
    """Return the curves of one task by arm, one for each seed; those in `kept` are not run again."""
    task, known = TASKS[name], kept_runs(kept)
    missing = [(seed, arm) for seed in seeds for arm in ARMS if (name, seed, arm) not in known]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(served(task)) if missing else None
        for seed, arm in missing:
            assert server is not None
            curve = run(server, task, seed, arm)
            known[name, seed, arm] = curve
            print(f"{name} seed {seed} {arm}: {curve[-1][1]:.3f} after {len(curve)} best candidates", flush=True)
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"task": name, "seed": seed, "arm": arm, "curve": curve}) + "\n")
    return {arm: [known[name, seed, arm] for seed in seeds] for arm in ARMS}


def summary(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last line. A task without a ratio is above the limit."""
    ratios = [float("inf") if each["ratio"] is None else each["ratio"] for each in found.values()]
    return {
        "tasks_within": sum(ratio <= WITHIN for ratio in ratios),
        "tasks_above": sum(ratio > ABOVE for ratio in ratios),
        "limits": LIMITS,
        "within": WITHIN,
        "above": ABOVE,
        "first_seed": SEEDS[0],
        "few_rows": FEW_ROWS,
        "slots": SLOTS,
        "tasks": found,
    }


def main() -> int:
    """Measure, end with the line of JSON; 0 when every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help=f"how many, from {SEEDS[0]}")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="runs as lines of JSON; those in it are not repeated")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.tasks) - set(TASKS)):
        parser.error(f"no task {', '.join(unknown)}; there are {', '.join(TASKS)}")
    found: dict[str, dict[str, Any]] = {}
    for name in arguments.tasks or TASKS:
        if (reason := TASKS[name].missing) is not None:
            print(f"{name}: skipped, {reason}", flush=True)
            continue
        found[name] = figures_of(TASKS[name], measure(name, SEEDS[: arguments.seeds], arguments.kept))
        print(f"{name}: {json.dumps(found[name])}", flush=True)
    figures = summary(found)
    print(json.dumps(figures))
    return int(figures["tasks_within"] < LIMITS["tasks_within"] or figures["tasks_above"] > LIMITS["tasks_above"])


if __name__ == "__main__":
    sys.exit(main())
