"""Scores the outputs that a run recorded anew, by another server; the program itself is not run."""

import functools
import itertools
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from evolverpc_common.model_prices import PriceTable
from gepa_client.analysis.ties import best_candidate
from gepa_client.errors import BadResponse, Interrupted, JournalError, Refused
from gepa_client.fleet import Address, Fleet
from gepa_client.gepa.batch_evaluator import score_call
from gepa_client.gepa.rows import EXACT_VALUES, Row, ServerRow
from gepa_client.journal.entries import SCORE, CandidateRecord, StoredRun
from gepa_client.journal.history import RecordedRow, results, validation_rows
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import request_key
from gepa_client.journal.store import Store
from gepa_client.transport.calls import AttemptLog
from gepa_client.transport.event_loop import GroupTask, run_group

OUTAGE_S = 60.0
"""Seconds without a scorer before the command fails; a later attempt loses nothing."""

SENT = ("output",)
"""What the scorer sees of a recorded result, besides its status and its seconds."""


@dataclass(frozen=True)
class RowScore:
    """A candidate on a row. `status`: `scored`, `failed` (the program did, or the scorer on its output) or `missing`.

    `old`: what the run gave it; `new`: None where nothing is recorded.
    """

    row: str
    status: str
    old: float | None
    new: float | None


@dataclass(frozen=True)
class RescoredCandidate:
    """A candidate's rows, in their order."""

    index: int
    rows: list[RowScore]

    def count(self, status: str) -> int:
        """Rows of this status."""
        return sum(row.status == status for row in self.rows)

    @property
    def old(self) -> float | None:
        """The mean of the old scores over the rows that have a new one."""
        return _mean(row.old for row in self.rows if row.new is not None)

    @property
    def new(self) -> float | None:
        """The mean of the new scores, failures included."""
        return _mean(row.new for row in self.rows)


@dataclass
class RescoringResult:
    """The new scores. `reasons`: why the scorer failed on outputs, one text for each of them."""

    run: str
    scorer: str
    failure_score: float
    best_by_old: int
    candidates: list[RescoredCandidate]
    reasons: list[str] = field(default_factory=list)

    @property
    def best_by_new(self) -> int | None:
        """The first of the best by the new scores, among those that have the most rows; None where nothing is."""
        most = max((len(one.rows) - one.count("missing") for one in self.candidates), default=0)
        whole = [one for one in self.candidates if most and len(one.rows) - one.count("missing") == most]
        found = max(whole, key=lambda one: one.new if one.new is not None else float("-inf"), default=None)
        return found.index if found is not None else None

    def as_json(self) -> dict[str, Any]:
        """Everything, with the scores by row."""
        return {
            "run": self.run,
            "scorer": self.scorer,
            "failure_score": self.failure_score,
            "best_by_old": self.best_by_old,
            "best_by_new": self.best_by_new,
            "candidates": [
                {
                    "index": one.index,
                    "old": one.old,
                    "new": one.new,
                    **{status: one.count(status) for status in ("scored", "failed", "missing")},
                    "rows": [asdict(row) for row in one.rows],
                }
                for one in self.candidates
            ],
            "scorer_failures": self.reasons,
        }


_RecordedOutput = tuple[RecordedRow, dict[str, Any]]
"""A row, and a result whose output is scored once for all candidates that gave it there."""


async def rescore_run(
    store: Store, run: StoredRun, scorer: Address, on_progress: Callable[[int, int], None] | None = None
) -> RescoringResult:
    """Score every recorded validation output; an output that several candidates gave on a row is scored once.

    A row on which the program failed keeps the run's failure score, and so does an output the scorer fails on.
    `on_progress` gets the number of outputs scored, and of all.

    Raises:
        JournalError: nothing is recorded to score. Refused: the server does not score.
        ClientError, RpcError: the scorer cannot be used, or gave no result in several attempts.
    """
    candidates, rows = store.candidates(run.id), validation_rows(store, run.id)
    if not candidates or not rows:
        raise JournalError(
            f"run {run.id} is {run.status} and has nothing to score: no candidate was evaluated on its validation rows"
        )
    recorded = results(store, run.id, itertools.product(candidates, rows), lambda _, result: result)
    outputs: dict[bytes, _RecordedOutput] = {}
    keys: dict[tuple[int, int], bytes] = {}
    for kept, row in itertools.product(candidates, rows):
        result = recorded.get((kept.index, row.row_id))
        if result is not None and result["status"] in ("ok", "rollout"):
            key = orjson.dumps([row.row_id, [result.get(name) for name in SENT]], option=orjson.OPT_SORT_KEYS)
            outputs.setdefault(key, (row, result))
            keys[kept.index, row.row_id] = key
    answers = await _scored(scorer, outputs, on_progress or (lambda _done, _all: None))
    best = best_candidate(store, run.id, candidates)
    failure_score = float(run.config.get("failure_score") or 0.0)

    def row_score(kept: CandidateRecord, row: RecordedRow) -> RowScore:
        place, old = (kept.index, row.row_id), kept.scores.get(str(row.row_id))
        if place not in recorded:
            return RowScore(row.id, "missing", old, None)
        answer = answers[keys[place]] if place in keys else None
        if answer is None or answer["status"] != "ok":
            return RowScore(row.id, "failed", old, failure_score)
        return RowScore(row.id, "scored", old, float(answer["score"]))

    return RescoringResult(
        run=run.id,
        scorer=scorer.url,
        failure_score=failure_score,
        best_by_old=best.index if best is not None else 0,
        candidates=[RescoredCandidate(kept.index, [row_score(kept, row) for row in rows]) for kept in candidates],
        reasons=[_reason(row, answers[key]) for key, (row, _) in outputs.items() if answers[key]["status"] != "ok"],
    )


async def _scored(
    scorer: Address, outputs: dict[bytes, _RecordedOutput], on_progress: Callable[[int, int], None]
) -> dict[bytes, dict[str, Any]]:
    """Return the scorer's response to each output, one example per call, within its concurrency limit."""
    answers: dict[bytes, dict[str, Any]] = {}
    journal = Journal(f"rescore-{uuid.uuid4().hex}")  # names the calls; nothing is kept of them
    fleet = Fleet(max_outage_s=OUTAGE_S)
    await fleet.open([scorer])
    try:
        if "scoring" not in fleet.discovery.capabilities:
            raise Refused(f"{scorer.url} does not score (it lacks the capability `scoring`): name a server that does")
        slots = journal.ask([request_key(SCORE, f"score row {row.id!r}") for row, _ in outputs.values()])

        async def score(key: bytes, attempts: AttemptLog, _task: GroupTask) -> None:
            answers[key] = await _verdict(fleet, *outputs[key], attempts)
            on_progress(len(answers), len(outputs))

        attempts = [journal.attempts(slot, SCORE) for slot in slots]
        await run_group([GroupTask(functools.partial(score, *each)) for each in zip(outputs, attempts, strict=True)])
    except Interrupted as ended:  # no run is interrupted here: the scorer gave no result
        raise BadResponse(f"the scorer gave no verdict: {ended.reason}") from ended
    finally:
        await fleet.aclose()
    return answers


async def _verdict(fleet: Fleet, recorded: RecordedRow, result: dict[str, Any], attempts: AttemptLog) -> dict[str, Any]:
    """Return the scorer's result: `ok`, or a failure that is the output's own."""
    hidden = recorded.data is None and "split" in recorded.example
    # with its data if the run was shown it: a scorer need not hold the same splits
    row = ServerRow(recorded.id, recorded.example["split"]) if hidden else Row(recorded.id, recorded.data)
    sent = {name: result[name] for name in SENT if result.get(name) is not None}
    rollout = {"status": "rollout", "score": None, "output": None, "seconds": result["seconds"], **sent}
    scoring = score_call([row], [rollout], PriceTable({}), exact=fleet.offers(EXACT_VALUES))
    [given] = (await fleet.call(scoring, attempts)).value
    if given["status"] == "rollout":
        raise BadResponse("the scorer answered `rollout` again, and no score")
    return given


def _reason(row: RecordedRow, answer: dict[str, Any]) -> str:
    error = answer.get("error") or {}
    return f"row {row.id}: {error.get('type', answer['status'])}: {error.get('message', 'no reason given')}"


def _mean(scores: Iterable[float | None]) -> float | None:
    known: Sequence[float] = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None
