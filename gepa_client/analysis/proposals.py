"""The proposals of a recorded run: the rows that each was made from, its texts and its outcome."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import orjson

from evolverpc_common.exact_values import readable
from gepa_client.journal.entries import FAILURE, SEARCH, CandidateRecord, StoredRun
from gepa_client.journal.history import RecordedRow, entries_at, recorded_events, score_of, selection_rows
from gepa_client.journal.run_events import (
    CandidateFound,
    Event,
    NoProposal,
    ProposalBegun,
    ProposalEvaluated,
    ProposalMade,
    Rejected,
    StepFailed,
    UnusableAnswer,
)
from gepa_client.journal.store import Store

VALUE_SHOWN = 1_000
"""Characters of an input, an output, a feedback or a value of a record that are kept."""

ROWS_SHOWN = 6
"""Rows of a group, and records of a reflective dataset, that are kept."""

Outcome = Literal["kept", "rejected", "raced_out", "empty", "refused", "unfinished"]
"""`empty`: reflection gave no new text, or an evaluation failed. `refused`: its change of code was rejected before
an evaluation. `unfinished`: it has not been decided."""


@dataclass(frozen=True)
class Excerpt:
    """The beginning of a text, or of a JSON value as text. `omitted`: characters that are left out."""

    text: str
    omitted: int = 0


COMPARED = {
    "output": "output",
    "feedback": "feedback",
    "component_feedback": "feedback on components",
    "error": "error",
}
"""Fields of a `RowResult` that views show before and after a change, with their names."""


@dataclass(frozen=True)
class RowResult:
    """The result of a candidate on a row. `score`: the failure score if the program failed. `log`: what it wrote."""

    status: str
    score: float
    output: Excerpt | None
    feedback: Excerpt | None
    component_feedback: Excerpt | None
    error: Excerpt | None
    log: Excerpt | None


@dataclass(frozen=True)
class ComparedRow:
    """A row before and after a change. `input`: None if the server did not show it; results: None if not recorded."""

    row: str
    input: Excerpt | None
    before: RowResult | None
    after: RowResult | None
    split: str = "train"


def excerpt(value: Any, limit: int = VALUE_SHOWN) -> Excerpt | None:
    """Return the beginning of a JSON value as text: an object of plain values as `key: value` lines; None for null."""
    if value is None:
        return None
    text = as_text(value)
    return Excerpt(text[:limit], max(0, len(text) - limit))


@dataclass
class Recorded:
    """What the events of a run state of one proposal. `ended`: the event by which it was not evaluated to its end."""

    begun: ProposalBegun
    made: ProposalMade | None = None
    evaluated: ProposalEvaluated | None = None
    decided: Rejected | CandidateFound | None = None
    unusable: list[UnusableAnswer] = field(default_factory=list)
    ended: NoProposal | StepFailed | None = None

    @property
    def number(self) -> int:
        """The number that it goes by."""
        return self.begun.proposal

    @property
    def candidate(self) -> int | None:
        """Its index in the pool; None if it was not kept, or not yet."""
        return self.decided.index if isinstance(self.decided, CandidateFound) else None

    @property
    def texts(self) -> dict[str, str]:
        """Its new texts; empty if there are none, or not yet."""
        return {} if self.made is None else self.made.texts

    @property
    def refused(self) -> int | None:
        """The number of its change of code if that was rejected, which left nothing to evaluate."""
        return self.made.mutation if self.made is not None and not self.made.texts else None

    @property
    def last(self) -> Event | None:
        """The event that decided on it; None while there is none."""
        if self.decided is not None or self.ended is not None:
            return self.decided or self.ended
        return self.made if self.made is not None and not self.made.texts else None

    @property
    def outcome(self) -> Outcome:
        """Its outcome; `unfinished` if there is none, or not yet."""
        if isinstance(self.decided, Rejected):
            return self.decided.outcome
        if self.decided is not None:
            return "kept"
        if self.last is None:
            return "unfinished"
        return "empty" if self.refused is None else "refused"

    @property
    def why(self) -> str:
        """Its outcome in words."""
        scores = None
        if self.evaluated is not None:
            scores = f"{self.begun.score:.4g} -> {self.evaluated.score:.4g} over {len(self.begun.rows)} rows"
        author = self.made.by_hand if self.made is not None else None
        return self._why(scores) if author is None else f"proposed by hand ({author}), {self._why(scores)}"

    def _why(self, scores: str | None) -> str:
        match self.decided:
            case CandidateFound():
                return f"better on its minibatch: {scores}"
            case Rejected(is_by_score=False, reason=reason, outcome=outcome):
                return (
                    f"better on its minibatch ({scores}), but {'not kept: ' if outcome == 'rejected' else ''}{reason}"
                )
            case Rejected():
                return f"not better on its minibatch: {scores}"
        if self.unusable and not self.texts:
            reasons = ((each.component, filter(None, (each.reason, each.then))) for each in self.unusable)
            answers = "; ".join(f"{component}: {', then '.join(found)}" for component, found in reasons)
            return f"its answers could not be used ({answers})"
        if self.refused is not None:
            return "its change of code was rejected"
        match self.ended:
            case StepFailed(step=step, message=message):
                return f"{step} failed: {message}"
            case NoProposal(reason=reason):
                return reason
        if self.made is not None and not self.made.texts:
            return "reflection gave no new text"
        return "the run ended before it was decided"


class RecordedProposals:
    """The proposals of a run by their numbers, from its events; `apply` takes one more."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.found: dict[int, Recorded] = {}
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> list[Recorded]:
        """Take one event into account; return the proposals that it changes."""
        if isinstance(event, ProposalBegun):
            self.found[event.proposal] = Recorded(event)
            return [self.found[event.proposal]]
        if isinstance(event, NoProposal | StepFailed):
            open_ = [each for each in self._last(event.iteration) if each.decided is None and each.ended is None]
            for each in open_:
                each.ended = event
            return open_
        if not isinstance(event, ProposalMade | ProposalEvaluated | UnusableAnswer | Rejected | CandidateFound):
            return []
        found = self.found.get(event.proposal) if event.proposal is not None else None
        match event:
            case _ if found is None:
                return []
            case ProposalMade():
                found.made = event
            case ProposalEvaluated():
                found.evaluated = event
            case UnusableAnswer():
                found.unusable.append(event)
            case _:
                found.decided = event
        return [found]

    @property
    def awaited(self) -> list[ProposalBegun]:
        """The proposals of the last iteration whose new texts are awaited."""
        last = next(reversed(self.found.values())).begun.iteration if self.found else 0
        return [each.begun for each in self._last(last) if each.made is None and each.ended is None]

    def _last(self, iteration: int) -> list[Recorded]:
        of_iteration = itertools.takewhile(
            lambda each: each.begun.iteration >= iteration, reversed(self.found.values())
        )
        return [*of_iteration][::-1]


class ProposalHistory:
    """The proposals of a run as it recorded them, with their rows and texts. `until`: by this place."""

    def __init__(
        self, store: Store, run: StoredRun, candidates: Sequence[CandidateRecord], until: int | None = None
    ) -> None:
        self._store, self._run, self._candidates = store, run, candidates
        self._failure_score = float(run.config.get("failure_score") or 0.0)
        self.recorded = RecordedProposals(recorded_events(store, run.id, until)).found

    def parent(self, one: Recorded) -> dict[str, str]:
        """Return the texts of the candidate that a proposal changes."""
        return self._candidates[one.begun.parent].texts

    @cached_property
    def _train(self) -> dict[str, RecordedRow]:
        return {row.id: row for row in selection_rows(self._store, self._run.id).get("train", [])}

    def rows(self, one: Recorded, shown: int | None = ROWS_SHOWN) -> tuple[ComparedRow, ...]:
        """Return the rows of a proposal's minibatch, before by its parent and after by itself.

        `shown`: how many, the first ones; all of them if None.
        """
        begun = one.begun
        after = one.evaluated.results if one.evaluated is not None else [None] * len(begun.rows)
        compared = list(zip(begun.rows, begun.results, after, strict=True))[:shown]
        train = self._train
        results = self.answers(number for _, *both in compared for number in both)

        def result(number: int | None) -> RowResult | None:
            return None if number is None else row_result(results[number], self._failure_score)

        return tuple(
            ComparedRow(row, excerpt(train[row].data) if row in train else None, result(number), result(later))
            for row, number, later in compared
        )

    def answers(self, numbers: Iterable[int | None]) -> dict[int, Any]:
        """Return the answers of these entries; none of one whose answer is a failure."""
        wanted = [number for number in numbers if number is not None]
        found = entries_at(self._store, self._run.id, SEARCH, wanted)
        return {entry.number: orjson.loads(entry.answer) for entry in found if entry.kind != FAILURE}


def row_result(
    result: Mapping[str, Any],
    failure_score: float,
    cut: Callable[[Any], Excerpt | None] = excerpt,
    *,
    traceback: bool = False,
) -> RowResult:
    """Return an `ExampleResult` with its texts as `cut` returns them; `traceback`: the error has it."""
    error = result.get("error") or {}
    message = f"{error.get('type')}: {error.get('message')}" if error else None
    if traceback and error.get("traceback"):
        message = f"{message}\n{error['traceback']}"
    return RowResult(
        status=str(result["status"]),
        score=score_of(result, failure_score),
        output=cut(result.get("output")),
        feedback=cut(result.get("feedback")),
        component_feedback=cut(result.get("component_feedback") or None),
        error=cut(message),
        log=cut(result.get("log") or error.get("log")),
    )


def as_text(value: Any) -> str:
    """Return a JSON value as text: an object as `key: value` lines."""
    value = readable(value)
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value:
        return "\n".join(f"{name}: {part if isinstance(part, str) else _json(part)}" for name, part in value.items())
    return _json(value)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
