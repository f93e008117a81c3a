"""The metric calls that racing needs for the held-out quality of full validation at its budget.

    python benchmarks/sample_efficiency.py [TASK ...] [--seeds N] [--kept FILE]

For each task and seed GEPA runs in each of `WAYS` through the whole client, as `gepa-client optimize` drives it, over
HTTP to a server of the program. The quality of a run after so many metric calls is that of its best candidate by then,
on rows that neither proposals nor selection see. A raced run compares its best candidate with the seed after the
search: these calls are added to each point of its curve, which keeps the best candidate of the search. The figure of a
task and a way is the number of calls at which the mean quality of such runs first reaches the mean of `full` ones at
the budget, over that budget; its interval is a bootstrap over seeds. Limits are those of `race`, the way that differs
from `full` in nothing else. FILE keeps each run as a line of JSON and is continued. The last line is JSON; the exit
status is 1 where a limit is missed.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "tickets" / "python")]

from benchmarks.race_tasks import TASKS, Rows, Task  # noqa: E402  the repository is not a package
from gepa_client.cli.commands.foreground_run import create_run  # noqa: E402
from gepa_client.journal.run_events import CandidateFound, Event, Finished, TiesCompared  # noqa: E402
from gepa_client.run.control_messages import DriverJob  # noqa: E402
from gepa_client.run.driver import drive  # noqa: E402
from gepa_client.run.gateway_record import GatewayRecord  # noqa: E402
from gepa_client.settings.run_config import RunConfig  # noqa: E402
from gepa_client.transport.event_loop import CancelToken  # noqa: E402
from sandbox_runtime import ServerEndpoint, running_server  # noqa: E402

SEEDS = 20
SLOTS = 4
FULL, RACE = "full", "race"
WAYS: dict[str, dict[str, Any]] = {
    FULL: {},
    "reuse": {"deterministic": True},
    RACE: {"validation": "race"},
    "race_reuse": {"validation": "race", "deterministic": True},
}
"""Settings beside those of the task. A program that is noisy has no way with `deterministic`."""

QUARTERS = (0.25, 0.5, 0.75, 1.0)
RESAMPLES = 2000
WITHIN_LIMIT = 4
LIMITS = {"tasks_within_limit": WITHIN_LIMIT, "tasks_above_full": 0}

Curve = list[tuple[int, float]]
"""(metric calls, held-out quality) whenever a run has a new best candidate, the seed candidate first."""


def run(server: ServerEndpoint, task: Task, rows: Rows, seed: int, way: str, folder: Path) -> Curve:
    """Optimize once, recorded in a store of its own.

    Raises:
        SystemExit: the run failed.
    """
    token = folder / "token"
    token.write_text(server.token, encoding="utf-8")
    settings = RunConfig(
        url=[server.url],
        token_file=str(token),
        trainset=rows.train,
        valset=rows.val,
        reflection_minibatch_size=task.minibatch,
        max_metric_calls=task.metric_calls,
        seed=seed,
        output=folder / "results",
        **WAYS[way],
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
        raise SystemExit(f"sample_efficiency: {way}, seed {seed}: {ended}")
    found = [event for event in events if isinstance(event, CandidateFound)]
    after = sum(each.rows * len(each.candidates) for each in events if isinstance(each, TiesCompared))
    return [(each.metric_calls + after, rows.quality(each.texts)) for each in found if each.best == each.index]


@contextlib.contextmanager
def served(task: Task) -> Iterator[ServerEndpoint]:
    """Serve the program while the block runs."""
    command = [str(Path(sys.executable).with_name("gepa-server")), "--python", sys.executable]
    command += ["--program", str(task.program.__file__), "--workers", "1", "--threads", str(SLOTS)]
    with running_server(command, cwd=ROOT) as server:
        yield server


# --- figures ---------------------------------------------------------------------------------------------------------


def quality_at(curve: Curve, calls: float) -> float:
    """Return the quality of the best candidate after so many calls; that of the seed candidate before it is scored."""
    return [quality for at, quality in curve if at <= calls][-1] if curve[0][0] <= calls else curve[0][1]


def needed(full: Sequence[Curve], other: Sequence[Curve], budget: int) -> float | None:
    """Return the share of the budget at which other runs reach the quality of full ones; None if never within it."""
    goal = sum(quality_at(curve, budget) for curve in full)
    for calls in sorted({at for curve in other for at, _ in curve if at <= budget}):
        if sum(quality_at(curve, calls) for curve in other) >= goal:
            return calls / budget
    return None


def interval(full: Sequence[Curve], other: Sequence[Curve], budget: int) -> list[float | None]:
    """Return the 95 % interval of `needed`; an end is None if it is above 1."""
    source = random.Random(0)  # noqa: S311  resampling, no secret
    draws = []
    for _ in range(RESAMPLES):
        drawn = source.choices(range(len(full)), k=len(full))
        draws.append(needed([full[at] for at in drawn], [other[at] for at in drawn], budget))
    ordered = sorted(draws, key=lambda share: float("inf") if share is None else share)
    return [ordered[round(part * (RESAMPLES - 1))] for part in (0.025, 0.975)]


def figures_of(task: Task, curves: Mapping[str, Sequence[Curve]]) -> dict[str, Any]:
    """Return what one task gives; `curves` by way. The `quality` is the mean after quarters of the budget."""
    full, budget = curves[FULL], task.metric_calls
    ways = {}
    for way, runs in curves.items():
        share = needed(full, runs, budget)
        ways[way] = {
            "share": share,
            "interval": interval(full, runs, budget),
            "kept": share is not None and share <= task.limit,
            "quality": [round(sum(quality_at(c, budget * at) for c in runs) / len(runs), 4) for at in QUARTERS],
        }
    return {"limit": task.limit, "seeds": len(full), "metric_calls": budget, "ways": ways}


# --- runs ------------------------------------------------------------------------------------------------------------


def kept_runs(file: Path | None) -> dict[tuple[str, int, str], Curve]:
    """Return the curves by task, seed and way that a file has."""
    if file is None or not file.exists():
        return {}
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {(line["task"], line["seed"], line["way"]): line["curve"] for line in lines}


def measure(name: str, seeds: int, kept: Path | None) -> dict[str, list[Curve]]:
    """Return the curves of one task by way, one for each seed; those in `kept` are not run again."""
    task, known = TASKS[name], kept_runs(kept)
    ways = [way for way, settings in WAYS.items() if not (task.noisy and settings.get("deterministic"))]
    pairs = [(seed, way) for seed in range(seeds) for way in ways]
    missing = [pair for pair in pairs if (name, *pair) not in known]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(served(task)) if missing else None
        for seed, way in missing:
            assert server is not None
            with tempfile.TemporaryDirectory() as folder:
                curve = run(server, task, task.rows(seed), seed, way, Path(folder))
            known[name, seed, way] = curve
            print(f"{name} seed {seed} {way}: {curve[-1][1]:.3f} after {len(curve)} best candidates", flush=True)
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"task": name, "seed": seed, "way": way, "curve": curve}) + "\n")
    return {way: [known[name, seed, way] for seed in range(seeds)] for way in ways}


def summary(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last line. `tasks_above_full`: where racing needs more than all of full validation's calls."""
    raced = [each["ways"][RACE] for each in found.values()]
    return {
        "tasks_within_limit": sum(each["kept"] for each in raced),
        "tasks_above_full": sum(each["share"] is None for each in raced),
        "limits": LIMITS,
        "slots": SLOTS,
        "tasks": found,
    }


def main() -> int:
    """Measure, end with the line of JSON; 0 when every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--kept", type=Path, metavar="FILE", help="runs as lines of JSON; those in it are not repeated")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.tasks) - set(TASKS)):
        parser.error(f"no task {', '.join(unknown)}; there are {', '.join(TASKS)}")
    found: dict[str, dict[str, Any]] = {}
    for name in arguments.tasks or TASKS:
        if (reason := TASKS[name].missing) is not None:
            print(f"{name}: skipped, {reason}", flush=True)
            continue
        found[name] = figures_of(TASKS[name], measure(name, arguments.seeds, arguments.kept))
        print(f"{name}: {json.dumps(found[name])}", flush=True)
    figures = summary(found)
    print(json.dumps(figures))
    return int(figures["tasks_within_limit"] < WITHIN_LIMIT or figures["tasks_above_full"] > 0)


if __name__ == "__main__":
    sys.exit(main())
