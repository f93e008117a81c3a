"""The proposals of a recorded run: what each was made from, what reflection read and answered, and its outcome."""

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import orjson

from evolverpc_common.exact_values import readable
from gepa_client.evolution.names import component_texts
from gepa_client.evolution.patches import Words, abridged, changed_words
from gepa_client.journal.completion_entries import CompletionEntry
from gepa_client.journal.entries import (
    COMPLETION,
    EVALUATE,
    MUTATION,
    PROPOSAL,
    RACE,
    REFLECTIVE_DATASET,
    REUSE,
    SEARCH,
    CandidateRecord,
    Entry,
    StoredRun,
)
from gepa_client.journal.history import RecordedRow, entries, entries_at, selection_rows
from gepa_client.journal.requests import SHOWN, digest_of, evaluate_key, evaluated_of, request_key
from gepa_client.journal.run_events import UnusableReason, race_text
from gepa_client.journal.steer_entries import by_hand
from gepa_client.journal.store import Store
from protocol.code import GIT_BRANCH, code_at

if TYPE_CHECKING:
    from gepa_client.gepa.answer_check import AnswerCheck

VALUE_SHOWN = 1_000
"""Characters of an input, an output, a feedback or a value of a record that are kept."""

ANSWER_SHOWN = 20_000
"""Characters of a model's answer that are kept."""

ROWS_SHOWN = 6
"""Rows of a group, and records of a reflective dataset, that are kept."""

WINDOWS = 64
"""Minibatches of one iteration among which that of a proposal is looked for."""

DATASET = re.compile(r"make a reflective dataset of (\d+) examples for (.*)", re.DOTALL)
REFLECTION = re.compile(
    r"reflect on (?P<name>(?P<quote>['\"]).*(?P=quote))(?:, as the first answer was (?P<first>[a-z ]+))?, job \d+",
    re.DOTALL,
)
JOB = re.compile(r".*, job (\d+)", re.DOTALL)

Outcome = Literal["kept", "rejected", "empty", "unfinished"]
"""`empty`: reflection gave no new text. `unfinished`: the run ended before the proposal was evaluated."""


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


@dataclass(frozen=True)
class TextChange:
    """A component's words, those that are only in one of two texts marked."""

    component: str
    words: tuple[Words, ...]


@dataclass(frozen=True)
class AnalyzedProposal:
    """A proposal of reflection. `number`: where it begins in the journal.

    `parent`: index of the candidate it starts from, None if that is not known. `size`: examples of its minibatch;
    `rows`: the first of them, before by the parent and after by the proposal; `before`, `after`: sums of the scores of
    all, None if they are not recorded. `records`: what reflection read, by
    component; `answers`: what the model answered. `texts`: what it changes; empty in the `reason` of a
    change, which has them. `mutation`: the number of the change of
    code. `candidate`: its index in the pool, None if it was not kept; `why`: the outcome in words. `by_hand`: the user
    who gave its texts, `user@host`, and `request` the id of the request that did; None for one of reflection.
    """

    number: int
    parent: int | None
    components: tuple[str, ...]
    size: int
    rows: tuple[ComparedRow, ...]
    before: float | None
    after: float | None
    records: dict[str, tuple[dict[str, Excerpt], ...]]
    answers: dict[str, Excerpt]
    texts: tuple[TextChange, ...]
    mutation: int | None
    candidate: int | None
    outcome: Outcome
    why: str
    by_hand: str | None = None
    request: str | None = None


def by_hand_note(author: str) -> str:
    """Return how `AnalyzedProposal.why` begins for texts by hand."""
    return f"proposed by hand ({author}), "


def excerpt(value: Any, limit: int = VALUE_SHOWN) -> Excerpt | None:
    """Return the beginning of a JSON value as text: an object of plain values as `key: value` lines; None for null."""
    if value is None:
        return None
    text = _as_text(value)
    return Excerpt(text[:limit], max(0, len(text) - limit))


def marked_texts(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[TextChange, ...]:
    """Return every component of the second candidate with all of its words, those that are new marked; none removed."""
    old = component_texts(dict(before))
    return tuple(
        TextChange(name, tuple(words for words in changed_words(old.get(name, ""), text) if words.kind != "del"))
        for name, text in component_texts(dict(after)).items()
    )


def text_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[TextChange, ...]:
    """Return the components in which two candidates differ, with the words of both, long unchanged parts left out."""
    old, new = component_texts(dict(before)), component_texts(dict(after))
    return tuple(
        TextChange(name, tuple(abridged(changed_words(old.get(name, ""), new.get(name, "")))))
        for name in dict.fromkeys([*old, *new])
        if old.get(name, "") != new.get(name, "")
    )


@dataclass
class _Job:
    """A reflective dataset of `size` examples and what was answered to it. `evaluated`: the evaluations before it.

    `texts`: what was proposed, `raw`: as the model wrote it; `made`: the candidate of a change of code. `unusable`: by
    component, why the model was asked twice, and why the second answer was no new text if it was none.
    """

    dataset: Entry
    size: int
    components: list[str]
    evaluated: Sequence[Entry]
    answers: list[Entry] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    raw: dict[str, str] = field(default_factory=dict)
    unusable: dict[str, tuple[str, str]] = field(default_factory=dict)
    mutation: int | None = None
    made: dict[str, str] | None = None
    rejection: str | None = None
    candidate: int | None = None
    by_hand: str | None = None
    request: str | None = None

    @property
    def number(self) -> int:
        return self.dataset.number

    def child_of(self, parent: Mapping[str, str]) -> dict[str, str]:
        """Return the texts of the proposed candidate."""
        return {**parent, **(self.made or {}), **self.texts}

    def makes(self, kept: CandidateRecord, parents: Sequence[CandidateRecord]) -> bool:
        """Whether a candidate of the pool is this proposal."""
        if self.number >= kept.number or len(parents) != 1:
            return False
        if self.made is not None:
            commit = code_at(self.made)[1]
            return code_at(kept.texts)[1] == commit != code_at(parents[0].texts)[1]
        return bool(self.texts) and self.child_of(parents[0].texts) == kept.texts


class ProposalHistory:
    """The proposals of a run, without their details.

    `start`, `until`: only what was requested from the one number on, and before the other. `train`: the training rows,
    read from the store if they are not given.
    """

    def __init__(
        self,
        store: Store,
        run: StoredRun,
        candidates: Sequence[CandidateRecord],
        until: int | None = None,
        *,
        start: int = 0,
        train: Sequence[RecordedRow] | None = None,
    ) -> None:
        self._store, self._run, self._start = store, run, start
        self._candidates = candidates
        self._failure_score = float(run.config.get("failure_score") or 0.0)
        self.evaluations: dict[str, list[int]] = {}
        """The numbers of the entries of evaluations, by the digest of their request."""
        train = selection_rows(store, run.id).get("train", []) if train is None else train
        self._rows = {repr(row.id): row for row in train}
        self._minibatches: dict[int, tuple[int | None, list[tuple[RecordedRow, RowResult]]]] = {}
        self._reuses = False
        self._races: list[int] = []
        self._jobs = list(self._found(until))
        self._read_answers()
        for kept in candidates:
            parents = [candidates[parent] for parent in kept.parents]
            made_by = [job for job in self._jobs if job.candidate is None and job.makes(kept, parents)]
            if made_by:
                made_by[-1].candidate = kept.index

    @property
    def numbers(self) -> dict[int, int | None]:
        """Every proposal's number, with the index of the candidate that it became; None if it was not kept."""
        return {job.number: job.candidate for job in self._jobs}

    @property
    def by_request(self) -> dict[str, int]:
        """The number of the proposal that has the texts of a request, by the request's id."""
        return {job.request: job.number for job in self._jobs if job.request is not None}

    def children(self, last: int = 0) -> dict[int, dict[str, str]]:
        """Return the texts of the proposed candidate by proposal; none of those without a known parent or new text.

        `last`: of so many proposals, the last ones; 0 for all.
        """
        made = [job for job in self._jobs if job.texts or job.made]
        found = {job.number: (job, self._minibatch(job)[0]) for job in made[-last:]}
        return {
            number: job.child_of(self._candidates[parent].texts)
            for number, (job, parent) in found.items()
            if parent is not None
        }

    def proposals(
        self, numbers: Sequence[int], *, texts: bool, shown: int | None = ROWS_SHOWN
    ) -> list[AnalyzedProposal]:
        """Return the proposals of these numbers with their rows, records and, if wanted, `texts`; in order.

        `shown`: how many rows and records; all of them if None.
        """
        wanted = set(numbers)
        return [self._proposal(job, texts=texts, shown=shown) for job in self._jobs if job.number in wanted]

    # --- finding -----------------------------------------------------------------------------------------------------

    def _found(self, until: int | None) -> Iterator[_Job]:
        """Yield a job for each reflective dataset, from the entries without their answers."""
        evaluated: list[Entry] = []
        group: list[_Job] = []
        known: dict[int, Entry] = {}
        for entry in entries(self._store, self._run.id, SEARCH, self._start, until, largest=0):
            if entry.kind == EVALUATE:
                self.evaluations.setdefault(entry.digest, []).append(entry.number)
                if group:
                    yield from group
                    evaluated, group = [], []
                evaluated.append(entry)
                known[entry.number] = entry
            elif entry.kind == REUSE:
                if group:
                    yield from group
                    group = []
                self._reuses = True
                numbers = list(itertools.chain.from_iterable(self._answers([entry.number])[entry.number]))
                for earlier in entries_at(self._store, self._run.id, SEARCH, set(numbers) - known.keys()):
                    known[earlier.number] = replace(earlier, answer=b"")
                    self.evaluations.setdefault(earlier.digest, []).append(earlier.number)
                evaluated = [known[number] for number in numbers]
            elif entry.kind == REFLECTIVE_DATASET and (read := DATASET.fullmatch(entry.about)) is not None:
                group.append(_Job(entry, int(read[1]), read[2].split(", "), evaluated[-WINDOWS * int(read[1]) :]))
            elif entry.kind == RACE:
                self._races.append(entry.number)
            elif entry.kind == MUTATION:  # its job is numbered among those that ask for a change
                for job in group:
                    job.answers.append(entry)
            elif entry.kind in (COMPLETION, PROPOSAL) and (at := JOB.fullmatch(entry.about)) is not None:
                for job in group[int(at[1]) : int(at[1]) + 1]:
                    job.answers.append(entry)
        yield from group

    def _read_answers(self) -> None:
        """Read what was proposed."""
        answers = self._answers(entry.number for job in self._jobs for entry in job.answers)
        for job in self._jobs:
            for entry in job.answers:
                answer = answers[entry.number]
                if entry.kind == PROPOSAL:
                    job.request, job.by_hand = by_hand(entry.about) or (None, None)
                    job.texts |= {name: text for name, text in answer.items() if self._is_usable(text)}
                elif entry.kind == MUTATION:
                    if answer["request"] in job.raw.get(GIT_BRANCH, ""):
                        job.mutation = entry.number
                        job.made = (answer.get("applied") or {}).get("candidate")
                        rejected = answer.get("rejected")
                        job.rejection = f"{rejected['stage']}: {rejected['reason']}" if rejected is not None else None
                elif (read := REFLECTION.fullmatch(entry.about)) is not None:
                    component, completion = str(ast.literal_eval(read["name"])), CompletionEntry.from_json(answer)
                    job.raw[component] = completion.text
                    if component != GIT_BRANCH:
                        job.texts[component] = self._text_of(completion)
                    if read["first"]:
                        then = self._unusable(component, read["first"], completion)
                        if then is not None:
                            job.texts.pop(component, None)
                        job.unusable[component] = (read["first"], then or "unchanged")

    def _is_usable(self, text: str | None) -> bool:
        """Return whether a text of a program was proposed; an unchanged one may have been: it makes no difference."""
        if text is None:
            return False
        return _check(self._run.config).judged(text, "") is None

    def _unusable(self, component: str, first: str, second: CompletionEntry) -> UnusableReason | None:
        """Return why the answer to a second prompt is no text, None if it is one, which may be unchanged."""
        from gepa_client.gepa.answer_check import AnswerForm, wants_block  # heavy

        given = self._run.config.get("reflection_prompt_template")
        template = given.get(component) if isinstance(given, dict) else given
        form = AnswerForm(template is None or wants_block(template)).again(first)
        if second.half_character:
            return "not text"
        fault = form.judged(second.text, "", cut_off=second.cut_off, block_expected=False)
        return fault or (
            _check(self._run.config).judged(form.text(second.text), "") if component != GIT_BRANCH else None
        )

    def _text_of(self, completion: CompletionEntry) -> str:
        from gepa_client.gepa.fenced_text import read_answer  # heavy

        return read_answer(completion.text).text

    def _answers(self, numbers: Iterable[int]) -> dict[int, Any]:
        """Return the answers of these entries, in their order. Those of evaluations may be large: none is kept."""
        found = entries_at(self._store, self._run.id, SEARCH, numbers)
        return {entry.number: orjson.loads(entry.answer) for entry in found}

    # --- details -----------------------------------------------------------------------------------------------------

    def _minibatch(self, job: _Job) -> tuple[int | None, list[tuple[RecordedRow, RowResult]]]:
        """Return the parent's index, and rows and results that the dataset was made from; none if no minibatch fits it.

        The digest of a dataset's request is that of its parent, its rows and their results, so it names the minibatch.
        """
        if job.number not in self._minibatches:
            self._minibatches[job.number] = self._read_minibatch(job)
        return self._minibatches[job.number]

    def _read_minibatch(self, job: _Job) -> tuple[int | None, list[tuple[RecordedRow, RowResult]]]:
        parents = {digest_of(kept.texts)[:SHOWN]: kept for kept in reversed(self._candidates)}
        for end in range(len(job.evaluated), job.size - 1, -job.size) if job.size else ():
            window = list(job.evaluated[end - job.size : end])
            about = [evaluated_of(entry.about) for entry in window]
            rows = [self._rows.get(one.quoted_id) for one in about if one is not None and one.traced]
            parent = parents.get(about[0].candidate) if about[0] is not None else None
            if parent is None or len(rows) < len(window):
                break  # not traced: these were evaluated for their scores
            answers = self._answers(entry.number for entry in window)
            both = [(row, answers[entry.number]) for row, entry in zip(rows, window, strict=True) if row is not None]
            scored = [[digest_of(row.example), _without_trace(answer)] for row, answer in both]
            key = request_key(REFLECTIVE_DATASET, "", parent.texts, scored, job.components)
            if key.digest == job.dataset.digest:
                return parent.index, [(row, row_result(answer, self._failure_score)) for row, answer in both]
        return None, []

    def _after(self, job: _Job, parent: CandidateRecord, rows: Sequence[RecordedRow]) -> list[RowResult | None]:
        """Return the results of the proposed candidate on the rows of its minibatch; None for one not recorded."""
        child = digest_of(job.child_of(parent.texts))
        found: list[int | None] = []
        for row in rows:
            keys = [evaluate_key(child, digest_of(row.example), row.id, trace).digest for trace in (False, True)]
            later = [number for key in keys for number in self.evaluations.get(key, ()) if number > job.number]
            reused = [number for key in keys for number in self.evaluations.get(key, ()) if self._reuses]
            found.append(min(later, default=max(reused, default=None)))
        answers = self._answers(number for number in found if number is not None)
        results = {number: row_result(answer, self._failure_score) for number, answer in answers.items()}
        return [results[number] if number is not None else None for number in found]

    def _lost(self, job: _Job, parent: CandidateRecord) -> str | None:
        """Return how the proposal lost the first race after it; None if it did not."""
        candidate = digest_of(job.child_of(parent.texts))[:SHOWN]
        for number, decision in self._decisions.items():
            for found in decision["proposals"] if number > job.number else ():
                if found["candidate"] == candidate and found["drops"]:
                    return race_text(found["compared"], decision["validation_rows"], found["mean"])
        return None

    @cached_property
    def _decisions(self) -> dict[int, Any]:
        return self._answers(self._races)

    def _proposal(self, job: _Job, *, texts: bool, shown: int | None) -> AnalyzedProposal:
        index, window = self._minibatch(job)
        parent = self._candidates[index] if index is not None else None
        compared: list[ComparedRow] = []
        if parent is not None:
            afterwards = self._after(job, parent, [row for row, _ in window])
            for (row, before), after in zip(window, afterwards, strict=True):
                compared.append(ComparedRow(row.id, excerpt(row.data), before, after))
        whole = bool(compared) and all(row.after is not None for row in compared)
        before_sum = sum(row.before.score for row in compared if row.before is not None) if compared else None
        after_sum = sum(row.after.score for row in compared if row.after is not None) if whole else None
        is_new = parent is None or job.child_of(parent.texts) != parent.texts
        lost = self._lost(job, parent) if parent is not None and job.candidate is None else None
        outcome, why = _outcome(job, before_sum, after_sum, len(compared), is_new=is_new, lost=lost)
        dataset = self._answers([job.number])[job.number].get("dataset") or {}
        return AnalyzedProposal(
            number=job.number,
            parent=index,
            components=tuple(job.components),
            size=job.size,
            rows=tuple(compared[:shown]),
            before=before_sum,
            after=after_sum,
            records={name: tuple(map(_record, records[:shown])) for name, records in dataset.items()},
            answers={name: excerpt(raw, ANSWER_SHOWN) or Excerpt("") for name, raw in job.raw.items()},
            texts=text_changes(parent.texts, job.child_of(parent.texts)) if parent is not None and texts else (),
            mutation=job.mutation,
            candidate=job.candidate,
            outcome=outcome,
            why=why if job.by_hand is None else by_hand_note(job.by_hand) + why,
            by_hand=job.by_hand,
            request=job.request,
        )


def _outcome(
    job: _Job, before: float | None, after: float | None, rows: int, *, is_new: bool, lost: str | None
) -> tuple[Outcome, str]:
    """Return the outcome of a proposal, and why.

    `is_new`: False for the texts of its parent, which are dropped. `lost`: how it lost its race; None if it did not.
    """
    scores = f"{before:.4g} -> {after:.4g} over {rows} rows" if before is not None and after is not None else None
    if job.candidate is not None:
        return "kept", f"better on its minibatch: {scores}" if scores else "better on its minibatch"
    if job.rejection is not None:
        return "rejected", f"its change of code was rejected at stage {job.rejection}"
    if not is_new or (not job.texts and job.made is None):
        answers = "; ".join(f"{name}: {first}, then {then}" for name, (first, then) in job.unusable.items())
        return "empty", f"its answers could not be used ({answers})" if answers else "reflection gave no new text"
    if scores is None or before is None or after is None:
        return "unfinished", "its evaluation on the minibatch is not recorded: the run ended first"
    if lost is not None and after >= before:
        return "rejected", f"better on its minibatch ({scores}), but {lost}"
    if after > before:
        return (
            "rejected",
            f"better on its minibatch ({scores}), but not on more rows, another one was kept, or the run ended first",
        )
    return "rejected", f"not better on its minibatch: {scores}"


def row_result(result: Mapping[str, Any], failure_score: float) -> RowResult:
    """Return the excerpts of an `ExampleResult`."""
    error = result.get("error") or {}
    message = f"{error.get('type')}: {error.get('message')}" if error else None
    score = result.get("score") if result["status"] == "ok" else None
    return RowResult(
        status=result["status"],
        score=float(score) if score is not None else failure_score,
        output=excerpt(result.get("output")),
        feedback=excerpt(result.get("feedback")),
        component_feedback=excerpt(result.get("component_feedback") or None),
        error=excerpt(message),
        log=excerpt(result.get("log") or error.get("log")),
    )


def _record(record: Mapping[str, Any]) -> dict[str, Excerpt]:
    return {str(name): excerpt(value) or Excerpt("null") for name, value in record.items()}


def _as_text(value: Any) -> str:
    value = readable(value)
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value:
        return "\n".join(f"{name}: {part if isinstance(part, str) else _json(part)}" for name, part in value.items())
    return _json(value)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _without_trace(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in ("trajectory", "trajectory_ref")}


def _check(config: Mapping[str, Any]) -> "AnswerCheck":
    from gepa_client.gepa.answer_check import AnswerCheck  # heavy

    return AnswerCheck(config.get("max_component_tokens"))
