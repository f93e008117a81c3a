"""Scores the outputs that a run recorded anew, by another server; the program itself is not run."""

import asyncio
import itertools
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gepa_client.answers import checked
from gepa_client.deadlines import evaluation_s
from gepa_client.errors import BadResponse, JournalError, Refused
from gepa_client.jobs import Job, run_all
from gepa_client.journal.entries import Kept, StoredRun
from gepa_client.journal.store import Store
from gepa_client.recorded import RecordedRow, Results, results, validation_rows
from gepa_client.report import fronts
from gepa_client.rpc import RpcClient
from protocol import ScoreResult
from protocol.errors import RpcError

TRIES = 5
FIRST_PAUSE_S = 0.5
SENT = ("output",)
"""What the scorer sees of a recorded result, besides its status and its seconds."""


@dataclass(frozen=True)
class Scorer:
    """The server that scores; see `RpcClient`."""

    url: str
    token_file: Path | None = None
    allow_insecure: bool = False


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
class Rescored:
    """What came of it. `reasons`: why the scorer failed on outputs, one text for each of them."""

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
                    "rows": [
                        {"row": row.row, "status": row.status, "old": row.old, "new": row.new} for row in one.rows
                    ],
                }
                for one in self.candidates
            ],
            "scorer_failures": self.reasons,
        }


@dataclass(frozen=True)
class _Output:
    """An output to be scored, once for all candidates that gave it on this row."""

    row: RecordedRow
    result: dict[str, Any]


async def rescored(
    store: Store, run: StoredRun, scorer: Scorer, on_progress: Callable[[int, int], None] | None = None
) -> Rescored:
    """Score every recorded validation output; an output that several candidates gave on a row is scored once.

    A row on which the program failed keeps the run's failure score, and so does an output the scorer fails on.
    `on_progress` is told how many outputs are scored, and of how many.

    Raises:
        JournalError: nothing is recorded to score. Refused: the server does not score.
        ClientError, RpcError: the scorer cannot be used, or gave no verdict in several tries.
    """
    candidates, rows = store.candidates(run.id), validation_rows(store, run.id)
    if not candidates or not rows:
        raise JournalError(
            f"run {run.id} is {run.status} and has nothing to score: no candidate was evaluated on its validation rows"
        )
    recorded = results(store, run.id, candidates, rows)
    outputs: dict[bytes, _Output] = {}
    keys: dict[tuple[int, int], bytes] = {}
    for kept, row in itertools.product(candidates, rows):
        result = recorded.get((kept.index, row.row_id))
        if result is not None and result["status"] in ("ok", "rollout"):
            key = orjson.dumps([row.row_id, [result.get(name) for name in SENT]], option=orjson.OPT_SORT_KEYS)
            outputs.setdefault(key, _Output(row, result))
            keys[kept.index, row.row_id] = key
    answers = await _scored(scorer, outputs, on_progress or (lambda _done, _all: None))
    best = fronts.best(candidates)
    failure_score = float(run.config.get("failure_score") or 0.0)
    return Rescored(
        run=run.id,
        scorer=scorer.url,
        failure_score=failure_score,
        best_by_old=best.index if best is not None else 0,
        candidates=[
            RescoredCandidate(
                kept.index,
                [_row_score(kept, row, recorded, answers, keys, failure_score) for row in rows],
            )
            for kept in candidates
        ],
        reasons=[
            _reason(output.row, answers[key]) for key, output in outputs.items() if answers[key]["status"] != "ok"
        ],
    )


def _row_score(
    kept: Kept,
    row: RecordedRow,
    recorded: Results,
    answers: dict[bytes, dict[str, Any]],
    keys: dict[tuple[int, int], bytes],
    failure_score: float,
) -> RowScore:
    place = (kept.index, row.row_id)
    old = kept.scores.get(str(row.row_id))
    if place not in recorded:
        return RowScore(row.id, "missing", old, None)
    answer = answers[keys[place]] if place in keys else None
    if answer is None or answer["status"] != "ok":
        return RowScore(row.id, "failed", old, failure_score)
    return RowScore(row.id, "scored", old, float(answer["score"]))


async def _scored(
    scorer: Scorer, outputs: dict[bytes, _Output], on_progress: Callable[[int, int], None]
) -> dict[bytes, dict[str, Any]]:
    """The scorer's answer to each job, one example a call, as many at once as it bears."""
    answers: dict[bytes, dict[str, Any]] = {}
    async with RpcClient(scorer.url, token_file=scorer.token_file, allow_insecure=scorer.allow_insecure) as client:
        discovery = await client.discover()
        if not client.offers("scoring"):
            raise Refused(f"{scorer.url} does not score (it lacks the capability `scoring`): name a server that does")
        name = f"rescore-{uuid.uuid4().hex}"

        def work(number: int, key: bytes, output: _Output) -> Job:
            async def run(_job: Job) -> None:
                answers[key] = await _verdict(client, output, f"{name}/{number}")
                on_progress(len(answers), len(outputs))

            return Job(run)

        numbered = [work(number, key, output) for number, (key, output) in enumerate(outputs.items())]
        await run_all(numbered, discovery.limits.max_concurrency)
    return answers


async def _verdict(client: RpcClient, output: _Output, call_id: str) -> dict[str, Any]:
    """Ask until there is one: `ok`, or a failure that is the output's own."""
    sent = {name: output.result[name] for name in SENT if output.result.get(name) is not None}
    result = {"status": "rollout", "score": None, "output": None, "seconds": output.result["seconds"], **sent}
    example = output.row.example if output.row.data is None else {"id": output.row.id, "data": output.row.data}
    limits = client.discovery.limits if client.discovery is not None else None
    last = ""
    for attempt in range(1, TRIES + 1):
        try:
            answer = await client.call(
                "score",
                {"batch": [example], "results": [result]},
                call_id=f"{call_id}/{attempt}" if client.offers("idempotency") else None,
                timeout_s=evaluation_s(limits, 1) if limits is not None else None,
            )
        except RpcError as error:
            if not error.retryable or attempt == TRIES:
                raise
            pause = float(error.details.get("retry_after_s") or 0.0)
        else:
            scored = checked(ScoreResult, answer).results
            if len(scored) != 1:
                raise BadResponse(f"score answered {len(scored)} results for 1 output")
            given = scored[0].model_dump()
            if given["status"] in ("ok", "program_error", "timeout"):
                return given
            last, pause = f"{given['status']}: {(given['error'] or {}).get('message', 'no reason given')}", 0.0
        await asyncio.sleep(max(pause, FIRST_PAUSE_S * 2 ** (attempt - 1)))
    raise BadResponse(
        f"the scorer gave no verdict on row {output.row.id!r} in {TRIES} tries; the last answer was {last}"
    )


def _reason(row: RecordedRow, answer: dict[str, Any]) -> str:
    error = answer["error"] or {}
    return f"row {row.id}: {error.get('type', answer['status'])}: {error.get('message', 'no reason given')}"


def _mean(scores: Iterable[float | None]) -> float | None:
    known: Sequence[float] = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None
