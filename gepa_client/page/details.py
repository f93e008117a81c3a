"""Parts of a run that the page loads when it shows them: cells, texts, proposals, provenance, changes of code."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from gepa_client.analysis.explanation import Change, Explanation, explain
from gepa_client.analysis.proposals import ComparedRow as AnalyzedRow
from gepa_client.analysis.proposals import Excerpt, ProposalHistory
from gepa_client.analysis.proposals import Proposal as AnalyzedProposal
from gepa_client.analysis.proposals import RowResult as AnalyzedResult
from gepa_client.errors import JournalError
from gepa_client.evolution.names import component_texts
from gepa_client.journal.entries import EVALUATE, MUTATION, SEARCH, CandidateRecord, Entry, StoredRun
from gepa_client.journal.history import RecordedRow, entries, entries_at, results_at, validation_rows
from gepa_client.journal.mutation_entries import MutationEntry
from gepa_client.journal.requests import digest_of, evaluate_key
from gepa_client.journal.store import Store
from gepa_client.page.page_answers import (
    Cell,
    ChangedText,
    ChangeShown,
    Explained,
    MarkedWords,
    MovedRows,
    Origin,
    PromptShown,
    ProposalShown,
    Provenance,
    ProvenanceSpan,
    RowCompared,
    RowShown,
    RunList,
    RunListed,
    StepShown,
    TextsCompared,
    Transcript,
    TranscriptEntry,
)
from gepa_client.page.page_events import SentText
from gepa_client.page.provenance import spans_of
from gepa_client.page.run_reader import sent_text
from gepa_client.report import summary_fields as fields

PART_SENT = 200_000
"""Characters of a part of a text that one answer holds."""

STEPS_SENT = 500
"""Steps of one example, those within steps included."""

RUNS_LISTED = 200

READ_BEFORE, READ_AFTER = 4_096, 20_000
"""Entries beside the beginning of a proposal among which are its minibatch, and its evaluation."""


class NotThere(Exception):
    """What was asked for does not exist; the message names it."""


def runs(store: Store) -> RunList:
    """Return the last runs of the store."""
    return RunList(runs=[_listed(store, run) for run in store.runs()[:RUNS_LISTED]])


def text(store: Store, run_id: str, candidate: int, component: str, start: int) -> SentText:
    """Return a component of a candidate from the character `start` on."""
    texts = component_texts(_candidate(store, run_id, candidate).texts)
    if component not in texts:
        raise NotThere(f"candidate {candidate} has no component {component!r}; it has {', '.join(texts)}")
    return part_of(texts[component], start)


def part_of(whole: str, start: int = 0) -> SentText:
    """Return a text from a character on; `omitted`: the characters after the part."""
    part = whole[start : start + PART_SENT]
    return SentText(text=part, omitted=max(0, len(whole) - start - len(part)))


class CellReader:
    """Finds the results of a run's candidates on rows. It reads the numbers of evaluations once, then those after."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._id = store, run_id
        self._rows: list[RecordedRow] = []
        self._numbers: dict[bytes, list[int]] = {}
        self._read_to = 0

    def cell(self, candidate: int, place: int) -> Cell:
        """Return a candidate's result on the validation row at this place."""
        kept, row = _candidate(self._store, self._id, candidate), self._row(place)
        number, result = self._result(kept, row)
        ends = self._store.finished_at(self._id, SEARCH, [number]) if number is not None else []
        usage = (ends[-1].usage if ends else None) or {}
        steps, why = _steps(result)
        return Cell(
            row=row.id,
            input=_shown(row.data),
            result=None if result is None else _row_shown(result),
            number=number,
            seconds=(result or {}).get("seconds"),
            input_tokens=usage.get("input_tokens"),
            output_tokens=usage.get("output_tokens"),
            cost_usd=usage.get("cost_usd"),
            steps=steps,
            no_steps=why,
        )

    def part(self, candidate: int, place: int, name: str, start: int) -> SentText:
        """Return a member of the result (`output`, `feedback`, `trajectory`, ...) or `input` from a character on."""
        kept, row = _candidate(self._store, self._id, candidate), self._row(place)
        result = self._result(kept, row)[1] or {}
        value = row.data if name == "input" else result.get(name)
        if value is None:
            raise NotThere(f"candidate {candidate} has no {name!r} on row {row.id}")
        return part_of(_as_text(value), start)

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
        found = results_at(self._store, self._id, [(kept, row)], numbers).get((kept.index, row.row_id))
        if found is None:
            return None, None
        last = [number for each in numbers.values() for number in each]
        for entry in entries_at(self._store, self._id, SEARCH, last):
            if orjson.loads(entry.answer) == found:
                return entry.number, found
        return None, found

    def _read_on(self) -> None:
        for entry in entries(self._store, self._id, SEARCH, self._read_to, largest=0):
            if entry.kind == EVALUATE:
                numbers = self._numbers.setdefault(bytes.fromhex(entry.digest), [])
                if entry.number not in numbers:
                    numbers.append(entry.number)
            if entry.number == self._read_to:
                self._read_to += 1  # up to the first number that is missing yet


def proposal(store: Store, run_id: str, at: int, decided: int | None) -> ProposalShown:
    """Return the proposal that begins at this number. `decided`: where its outcome was known, None if it is not."""
    run, candidates = store.run(run_id), store.candidates(run_id)
    until = decided if decided is not None else at + READ_AFTER
    history = ProposalHistory(store, run, candidates, until, start=max(0, at - READ_BEFORE))
    found = _proposals(run, candidates, history, [at])
    if not found:
        raise NotThere(f"no proposal begins at {at}")
    return found[at]


def proposals(store: Store, run_id: str, numbers: Sequence[int]) -> dict[int, ProposalShown]:
    """Return several proposals of a run that has ended, by where they begin; its entries are read once."""
    run, candidates = store.run(run_id), store.candidates(run_id)
    return _proposals(run, candidates, ProposalHistory(store, run, candidates), numbers)


def _proposals(
    run: StoredRun, candidates: Sequence[CandidateRecord], history: ProposalHistory, numbers: Sequence[int]
) -> dict[int, ProposalShown]:
    found = history.proposals(numbers, texts=False)
    children = history.children() if found else {}
    return {one.number: _proposal(run, candidates, one, children.get(one.number)) for one in found}


def _proposal(
    run: StoredRun, candidates: Sequence[CandidateRecord], one: AnalyzedProposal, child: Mapping[str, str] | None
) -> ProposalShown:
    compared: dict[str, TextsCompared] = {}
    if child is not None and one.parent is not None:
        before, after = component_texts(candidates[one.parent].texts), component_texts(dict(child))
        compared = {
            name: TextsCompared(before=sent_text(before.get(name, "")), after=sent_text(text_))
            for name, text_ in after.items()
            if before.get(name, "") != text_
        }
    prompts = [
        PromptShown(
            component=name,
            model=run.config.get("reflection_lm"),
            prompt=_records_shown(one.records.get(name, ())),
            answer=_excerpt(one.answers.get(name)),
        )
        for name in one.components
    ]
    return ProposalShown(rows=[_compared(row) for row in one.rows], prompts=prompts, texts=compared)


def explanation(store: Store, run_id: str) -> Explained:
    """Return why the best candidate of a run is better than the seed."""
    found = explain(store, store.run(run_id))
    if found is None:
        raise NotThere("the seed has not been scored")
    return explained(found)


def explained(found: Explanation) -> Explained:
    """Return an explanation as the page gets it."""
    return Explained(
        best=found.best,
        overall=None if found.overall is None or len(found.steps) < 2 else _change(found.overall),
        steps=[_change(step) for step in found.steps],
        steps_omitted=found.steps_omitted,
    )


def _change(change: Change) -> ChangeShown:
    return ChangeShown(
        candidate=change.candidate,
        title=fields.step_title(change),
        origin=fields.step_origin(change),
        moved=fields.moved_rows(change.scores),
        texts=[
            ChangedText(
                component=text_.component, words=[MarkedWords(kind=part.kind, text=part.text) for part in text_.words]
            )
            for text_ in change.texts
        ],
        proposal=change.reason.number if change.reason is not None else None,
        groups=[
            MovedRows(name=name, count=moved.count, rows=[_compared(row) for row in moved.rows])
            for name, moved in fields.row_groups(change)
            if moved.count
        ],
    )


def provenance(
    store: Store,
    run_id: str,
    candidate: int,
    proposals: Mapping[int, tuple[int, int]],
    known: Mapping[int, ProposalShown] | None = None,
) -> Provenance:
    """Return where the texts of a candidate are from.

    `proposals`: where the proposal that became a candidate begins, and where that was decided, by the index.
    `known`: proposals that need not be read, by where they begin.
    """
    _candidate(store, run_id, candidate)
    candidates = store.candidates(run_id)
    components = {
        name: [
            ProvenanceSpan(text=part, candidate=index, proposal=proposals[index][0] if index in proposals else None)
            for part, index in spans
        ]
        for name, spans in spans_of(candidates, candidate).items()
    }
    used = sorted({span.candidate for spans in components.values() for span in spans})
    origins = [_origin(store, run_id, candidates[index], proposals, known or {}) for index in used]
    return Provenance(components=components, origins=origins)


def transcript(store: Store, run_id: str, at: int) -> Transcript:
    """Return the change of code that was requested at this number."""
    found = [entry for entry in store.entries_at(run_id, SEARCH, [at]) if entry.kind == MUTATION]
    if not found:
        raise NotThere(f"no change of code was requested at {at}")
    return _transcript(found[0])


def _transcript(entry: Entry) -> Transcript:
    found = MutationEntry.model_validate_json(entry.answer)
    parts = [TranscriptEntry(role="change request", text=sent_text(found.request))]
    diff: str | None = None
    if found.applied is not None:
        parts.append(TranscriptEntry(role="summary", text=sent_text(found.applied.summary)))
        diff = found.applied.diff
    if found.rejected is not None:
        parts.append(TranscriptEntry(role=f"rejected at {found.rejected.stage}", text=sent_text(found.rejected.reason)))
        if found.rejected.log_tail:
            parts.append(TranscriptEntry(role="log", text=sent_text(found.rejected.log_tail)))
        diff = found.rejected.diff
    return Transcript(entries=parts, diff=None if diff is None else part_of(diff))


def _origin(
    store: Store,
    run_id: str,
    kept: CandidateRecord,
    proposals: Mapping[int, tuple[int, int]],
    known: Mapping[int, ProposalShown],
) -> Origin:
    number, decided = proposals.get(kept.index, (None, None))
    made = None
    if number is not None:
        made = known.get(number) or proposal(store, run_id, number, decided)
    rows = [row.row for row in made.rows if _improved(row)] if made is not None else []
    worth: str | None = None
    if kept.parents:
        parent = max((_candidate(store, run_id, each) for each in kept.parents), key=lambda each: each.score)
        worth = f"{parent.score:.4g} -> {kept.score:.4g} on the validation rows"
    return Origin(candidate=kept.index, proposal=number, rows=rows, worth=worth)


def _improved(row: RowCompared) -> bool:
    """Whether the parent failed on a row of the minibatch, or the proposal scored more."""
    before = row.before.score if row.before is not None else None
    after = row.after.score if row.after is not None else None
    return before is None or (after is not None and after > before)


def _candidate(store: Store, run_id: str, index: int) -> CandidateRecord:
    found = [kept for kept in store.candidates(run_id, index) if kept.index == index] if index >= 0 else []
    if not found:
        raise NotThere(f"the run has no candidate {index}")
    return found[0]


def _listed(store: Store, run: StoredRun) -> RunListed:
    try:
        candidates = store.candidates(run.id)
    except JournalError:  # deleted meanwhile, or damaged; the other runs are listed
        candidates = []
    best: list[tuple[int, float]] = []
    for kept in candidates:
        if not best or kept.score > best[-1][1]:
            best.append((kept.metric_calls, kept.score))
    texts = (run.best or {}).get("texts") or {}
    return RunListed(
        run_id=run.id,
        name=run.name,
        status=run.status,
        program=run.program,
        created=run.created,
        completed=run.completed,
        seed_score=candidates[0].score if candidates else None,
        best_score=best[-1][1] if best else None,
        candidates=len(candidates),
        metric_calls=run.counters.get("metric_calls"),
        cost_usd=run.counters.get("spent_usd"),
        unpriced=sum((run.counters.get("unpriced") or {}).values()),
        unreported=sum((run.counters.get("unreported") or {}).values()),
        curve=best,
        settings=run.config,
        best_texts={name: sent_text(each) for name, each in component_texts(dict(texts)).items()},
    )


def _compared(row: AnalyzedRow) -> RowCompared:
    return RowCompared(row=row.row, input=_excerpt(row.input), before=_analyzed(row.before), after=_analyzed(row.after))


def _analyzed(result: AnalyzedResult | None) -> RowShown | None:
    if result is None:
        return None
    return RowShown(
        status=result.status,
        score=result.score if result.status == "ok" else None,
        output=_excerpt(result.output),
        feedback=_excerpt(result.feedback),
        component_feedback=_excerpt(result.component_feedback),
        error=_excerpt(result.error),
        log=_excerpt(result.log),
    )


def _row_shown(result: Mapping[str, Any]) -> RowShown:
    error = result.get("error") or {}
    message = None
    if error:
        message = f"{error.get('type')}: {error.get('message')}"
        message += f"\n{error['traceback']}" if error.get("traceback") else ""
    return RowShown(
        status=str(result.get("status")),
        score=result.get("score"),
        output=_shown(result.get("output")),
        feedback=_shown(result.get("feedback")),
        component_feedback=_shown(result.get("component_feedback") or None),
        error=_shown(message),
        log=_shown(result.get("log") or error.get("log")),
    )


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
        "input": _shown(step.get("inputs")),
        "output": _shown(step.get("outputs")),
        "error": _shown(message),
        "seconds": step.get("seconds"),
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
    }


def _records_shown(records: Sequence[Mapping[str, Excerpt]]) -> SentText | None:
    """Return the records that reflection read as one text."""
    blocks = [
        "\n".join(f"{name}: {value.text}{' ...' if value.omitted else ''}" for name, value in record.items())
        for record in records
    ]
    return sent_text("\n\n".join(blocks)) if blocks else None


def _excerpt(value: Excerpt | None) -> SentText | None:
    return None if value is None else SentText(text=value.text, omitted=value.omitted)


def _shown(value: Any) -> SentText | None:
    return None if value is None else sent_text(_as_text(value))


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
