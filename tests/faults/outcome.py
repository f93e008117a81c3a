"""What a run came to, what it cost in executions, and how two runs differ."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gepa_client.journal.entries import PROCESSES
from gepa_client.journal.store import open_store
from tests.faults import execution_log
from tests.faults.execution_log import Execution

RAN = re.compile(rb'"ran":\s*"([0-9a-f]{16})"')


@dataclass(frozen=True)
class Outcome:
    """What must not depend on accidents.

    `scores`: per candidate, by GEPA's row id. `entries`: how many the journal holds, by part and kind, without those
    of its processes.
    `certificate`: None if there is none; without digests of rows, which name a file of the run, of answers and times,
    and without costs, which repeated attempts add to.
    """

    status: str
    candidates: list[dict[str, str]]
    parents: list[list[int | None]]
    scores: list[dict[str, float]]
    found_at: list[int]
    metric_calls: int
    test_scores: dict[str, float]
    entries: dict[str, int]
    certificate: dict[str, Any] | None


@dataclass(frozen=True)
class Executions:
    """What really ran. `recorded`: the executions whose answers are in the journal; `retraces`: attempts for traces."""

    ran: Sequence[Execution]
    recorded: frozenset[str]
    retraces: int = 0
    calls: dict[str, int] = field(default_factory=dict)

    @property
    def repeated(self) -> list[Execution]:
        """Executions whose answers were not recorded: fresh traces, and work lost to faults."""
        return [execution for execution in self.ran if execution.ran not in self.recorded]

    @property
    def needless(self) -> list[Execution]:
        """Of these, the ones that no recorded execution of the same example and candidate came after.

        What an accident costs is run again and recorded then; what runs again though it was recorded is not.
        """
        last: dict[tuple[str, int], float] = {}
        for execution in self.ran:
            if execution.ran in self.recorded:
                key = (execution.candidate, execution.row)
                last[key] = max(execution.at, last.get(key, execution.at))
        return [one for one in self.repeated if last.get((one.candidate, one.row), -1.0) <= one.at]


def differences(expected: Outcome, found: Outcome) -> list[str]:
    """Everything in which a run differs from the undisturbed one, in words."""
    found_faults = []
    for name, wanted in asdict(expected).items():
        got = getattr(found, name)
        if got == wanted:
            continue
        if isinstance(wanted, list):
            at = next((n for n, pair in enumerate(zip(wanted, got, strict=False)) if pair[0] != pair[1]), len(wanted))
            found_faults.append(f"{name}: {len(wanted)} expected, {len(got)} found; the first to differ is number {at}")
        else:
            found_faults.append(f"{name}: {wanted!r} expected, {got!r} found")
    return found_faults


def faults(executions: Executions, *, in_flight: int) -> list[str]:
    """Everything that ran though it need not have; `in_flight`: examples that accidents may have cost, at most."""
    found_faults = []
    known = {execution.ran for execution in executions.ran}
    twice = [ran for ran, times in Counter(execution.ran for execution in executions.ran).items() if times > 1]
    if twice:
        found_faults.append(f"{len(twice)} executions were noted twice")
    if unknown := executions.recorded - known:
        found_faults.append(f"{len(unknown)} recorded answers come from executions that never were")
    needless = executions.needless
    if len(needless) > executions.retraces:
        found_faults.append(
            f"{len(needless)} examples ran again though their results were recorded ({executions.retraces} fresh "
            f"traces among them): {needless[:3]}"
        )
    lost = len(executions.repeated) - executions.retraces
    if lost > in_flight:
        found_faults.append(f"{lost} examples ran again, but only {in_flight} can have been in flight")
    return found_faults


def outcome_of(store_url: str, run_id: str, folder: Path) -> Outcome:
    """What a run came to, by its store and by `result.json` in its folder, which must agree."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    with closing(open_store(store_url)) as store:
        run = store.run(run_id)
        kept = store.candidates(run_id)
        entries = Counter(
            f"{part} {entry.kind}"
            for part in {*store.parts(run_id)} - {PROCESSES}
            for entry in _entries(store, run_id, part)
        )
    found = Outcome(
        status=run.status,
        candidates=result["candidates"],
        parents=result["parents"],
        scores=result["val_subscores"],
        found_at=result["discovery_eval_counts"],
        metric_calls=result["total_metric_calls"],
        test_scores=result["test_scores"],
        entries=dict(sorted(entries.items())),
        certificate=_certificate(folder / "certificate.json"),
    )
    assert [candidate.texts for candidate in kept] == found.candidates
    assert [candidate.scores for candidate in kept] == found.scores
    assert run.counters["metric_calls"] == found.metric_calls
    assert run.best is not None
    assert run.best["index"] == result["best_idx"]
    return found


def _certificate(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    del found["run"]
    for group, names in (("digests", ("seed", "best")), ("budget", ("evaluations", "test_evaluations"))):
        found[group] = {name: found[group][name] for name in names}
    return found


def executions_of(store_url: str, run_id: str, log: Path) -> Executions:
    """What ran for a run, and which of it the store keeps."""
    with closing(open_store(store_url)) as store:
        parts = list(store.parts(run_id))
        answers = [entry.answer for part in parts for entry in _entries(store, run_id, part)]
        retraces = sum(attempt.kind == "retrace" for part in parts for attempt in store.attempts(run_id, part))
    return Executions(
        ran=execution_log.executions(log),
        recorded=frozenset(ran.decode() for answer in answers for ran in RAN.findall(answer)),
        retraces=retraces,
        calls={what: execution_log.calls(log, what) for what in ("reflective_dataset", "proposal")},
    )


def _entries(store: Any, run_id: str, part: str) -> list[Any]:
    found: list[Any] = []
    while page := store.entries(run_id, part, len(found)):
        found += page
    return found
