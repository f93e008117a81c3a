"""Read what is recorded of a candidate: its texts in parts, and its result on a row with input, output, steps, log."""

from collections.abc import Mapping
from typing import Any

import orjson

from gepa_client.analysis.proposals import Excerpt, RowResult, as_text, row_result
from gepa_client.evolution.candidate_names import component_texts
from gepa_client.journal.entries import CANDIDATE, EVALUATE, EVENTS, SEARCH, CandidateRecord
from gepa_client.journal.history import RecordedRow, entries, results, validation_rows
from gepa_client.journal.requests import digest_of, evaluate_key
from gepa_client.journal.store import Store
from gepa_client.page.page_events import Part, shown

_PART_SENT = 200_000
"""Characters of a part of a text that one answer holds."""

STEPS_SENT = 500
"""Steps of one example, those within steps included."""


class NotThere(Exception):
    """What was asked for does not exist; the message names it."""


def part_of(whole: str, start: int = 0) -> Excerpt:
    """Return a text from a character on."""
    part = whole[start : start + _PART_SENT]
    return Excerpt(text=part, omitted=max(0, len(whole) - start - len(part)))


class StepShown(Part):
    """A step of an example's run."""

    name: str
    component: str | None
    input: Excerpt | None
    output: Excerpt | None
    error: Excerpt | None
    seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    steps: list["StepShown"]


class Cell(Part):
    """A candidate on a validation row. `no_steps`: why there are none. `seconds`, tokens, cost: of the attempt."""

    row: str
    input: Excerpt | None
    result: RowResult | None
    number: int | None
    seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    steps: list[StepShown]
    no_steps: str | None


class CandidateReader:
    """Finds texts of a run's candidates, and their results on rows.

    It reads the numbers of evaluations and of the decisions that have the candidates once, then those after.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._id = store, run_id
        self._failure_score = float(store.run(run_id).config.get("failure_score") or 0.0)
        self._rows: list[RecordedRow] = []
        self._numbers: dict[bytes, list[int]] = {}
        self._read_to = 0
        self._found: list[int] = []
        self._found_to = 0

    def text(self, candidate: int, component: str, start: int) -> Excerpt:
        """Return a component of a candidate from the character `start` on."""
        texts = component_texts(self._candidate(candidate).texts)
        if component not in texts:
            raise NotThere(f"candidate {candidate} has no component {component!r}; it has {', '.join(texts)}")
        return part_of(texts[component], start)

    def cell(self, candidate: int, place: int) -> Cell:
        """Return a candidate's result on the validation row at this place."""
        kept, row = self._candidate(candidate), self._row(place)
        number, result = self._result(kept, row)
        ends = self._store.finished_at(self._id, SEARCH, [number]) if number is not None else []
        usage = (ends[-1].usage if ends else None) or {}
        steps, why = _steps(result)
        return Cell(
            row=row.id,
            input=shown(row.data),
            result=None if result is None else row_result(result, self._failure_score, shown, traceback=True),
            number=number,
            seconds=(result or {}).get("seconds"),
            input_tokens=usage.get("input_tokens"),
            output_tokens=usage.get("output_tokens"),
            cost_usd=usage.get("cost_usd"),
            steps=steps,
            no_steps=why,
        )

    def part(self, candidate: int, place: int, name: str, start: int) -> Excerpt:
        """Return a member of the result (`output`, `feedback`, `trajectory`, ...) or `input` from a character on."""
        kept, row = self._candidate(candidate), self._row(place)
        result = self._result(kept, row)[1] or {}
        value = row.data if name == "input" else result.get(name)
        if value is None:
            raise NotThere(f"candidate {candidate} has no {name!r} on row {row.id}")
        return part_of(as_text(value), start)

    def _candidate(self, index: int) -> CandidateRecord:
        for entry in entries(self._store, self._id, EVENTS, self._found_to, largest=0):
            self._found_to = entry.number + 1
            if entry.kind == CANDIDATE:
                self._found.append(entry.number)
        if not 0 <= index < len(self._found):
            raise NotThere(f"the run has no candidate {index}")
        [entry] = self._store.entries_at(self._id, EVENTS, [self._found[index]])
        return CandidateRecord.of(orjson.loads(entry.answer))

    def _row(self, place: int) -> RecordedRow:
        self._rows = self._rows or validation_rows(self._store, self._id)
        if not 0 <= place < len(self._rows):
            raise NotThere(f"the run has no validation row at place {place}; it has {len(self._rows)} rows")
        return self._rows[place]

    def _result(self, kept: CandidateRecord, row: RecordedRow) -> tuple[int | None, dict[str, Any] | None]:
        candidate, example = digest_of(kept.texts), digest_of(row.example)
        digests = [evaluate_key(candidate, example, row.id, trace).digest for trace in (True, False)]
        self._read_on()
        numbers = {digest: self._numbers.get(bytes.fromhex(digest), []) for digest in digests}
        found = results(self._store, self._id, [(kept, row)], lambda *each: each, numbers)
        return found.get((kept.index, row.row_id), (None, None))

    def _read_on(self) -> None:
        for entry in entries(self._store, self._id, SEARCH, self._read_to, largest=0):
            if entry.kind == EVALUATE:
                numbers = self._numbers.setdefault(bytes.fromhex(entry.digest), [])
                if entry.number not in numbers:
                    numbers.append(entry.number)
            if entry.number == self._read_to:
                self._read_to += 1  # up to the first number that is missing yet


def _steps(result: Mapping[str, Any] | None) -> tuple[list[StepShown], str | None]:
    """Return the steps of a result's trajectory; if there are none, why."""
    if result is None:
        return [], "nothing is recorded"
    trajectory = result.get("trajectory")
    if trajectory is None:
        if result.get("trajectory_ref"):
            return [], "the trajectory stayed at its server, which keeps it for a while"
        return [], "this evaluation captured no trace; minibatches do"
    steps = trajectory.get("steps") if isinstance(trajectory, dict) else None
    if not isinstance(steps, list):
        return [StepShown(**_step_fields({"name": "trajectory", "outputs": trajectory}), steps=[])], None
    left = [STEPS_SENT]
    return [_step(each, left) for each in steps if isinstance(each, dict) and left[0] > 0], None


def _step(step: Mapping[str, Any], left: list[int]) -> StepShown:
    left[0] -= 1
    inner = [_step(each, left) for each in step.get("steps") or () if isinstance(each, dict) and left[0] > 0]
    return StepShown(**_step_fields(step), steps=inner)


def _step_fields(step: Mapping[str, Any]) -> dict[str, Any]:
    error, usage = step.get("error"), step.get("usage") or {}
    message = f"{error.get('type')}: {error.get('message')}" if isinstance(error, dict) else error
    return {
        "name": str(step.get("name") or step.get("component") or "step"),
        "component": step.get("component"),
        "input": shown(step.get("inputs")),
        "output": shown(step.get("outputs")),
        "error": shown(message),
        "seconds": step.get("seconds"),
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
    }
