"""A whole run as one JSON document, to be kept or taken up in another store."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from gepa_client.errors import JournalError, NumberTaken
from gepa_client.journal.entries import Claim, Ended, Entry, Kept, Row, Sent, StoredRun
from gepa_client.journal.records import ENDED_FIELDS, SENT_FIELDS
from gepa_client.journal.store import Store

FORMAT = "evolverpc-run"
VERSION = 1
SHOWN_MISTAKES = 3

Index = Annotated[int, Field(ge=0)]
Status = Literal["pending", "running", "paused", "completed", "failed", "cancelled"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Run(_Part):
    id: Annotated[str, Field(min_length=1)]
    name: str | None
    status: Status
    reason: str | None
    config: dict[str, Any]
    identity: dict[str, Any] | None
    counters: dict[str, Any]
    best: dict[str, Any] | None
    output: str | None
    parent: dict[str, Any] | None
    created: str
    updated: str


class _Entry(_Part):
    """`answer` as JSON, or `answer_text`: the text itself, where writing the JSON again would give another one."""

    part: str
    number: Index
    kind: str
    digest: str
    about: str
    answer: Any = None
    answer_text: str | None = None

    _bytes: bytes = PrivateAttr(b"")

    @model_validator(mode="after")
    def _one_answer(self) -> "_Entry":
        if ("answer" in self.model_fields_set) == (self.answer_text is not None):
            raise ValueError("has either `answer` or `answer_text`")
        if self.answer_text is not None:
            _checked(self.answer_text)
            self._bytes = self.answer_text.encode()
            return self
        try:
            self._bytes = orjson.dumps(self.answer)
        except orjson.JSONEncodeError as error:
            raise ValueError(f"`answer` cannot be written again ({error})") from error
        return self

    def entry(self) -> Entry:
        return Entry(self.part, self.number, self.kind, self.digest, self.about, self._bytes)


class _Attempt(_Part):
    part: str
    number: Index
    attempt: Annotated[int, Field(ge=1)]
    kind: str
    endpoint: str
    instance: str | None
    outcome: str | None = None
    seconds: float | None = None
    usage: dict[str, Any] | None = None
    examples: Index = 1
    unpriced: Index = 0


class _Candidate(_Part):
    index: Index
    texts: dict[str, str]
    parents: list[int]
    iteration: int
    number: Index
    score: float
    scores: dict[str, float]
    metric_calls: Index
    objective_scores: dict[str, float] | None = None


class _Document(_Part):
    format: Literal["evolverpc-run"]
    version: Literal[1]
    run: _Run
    entries: list[_Entry]
    attempts: list[_Attempt]
    candidates: list[_Candidate]


RUN_FIELDS = tuple(_Run.model_fields)
ENDED_WRITTEN = tuple(name for name in _Attempt.model_fields if name in ENDED_FIELDS)


def export_run(store: Store, run_id: str) -> dict[str, Any]:
    """The run as JSON values: everything the store knows of it but who drives it.

    Raises `JournalError` for an answer that is not text.
    """
    run = store.run(run_id)
    entries: list[dict[str, Any]] = []
    attempts: dict[tuple[str, int, int], dict[str, Any]] = {}
    candidates: list[dict[str, Any]] = []
    for row in store.rows(run_id):
        match row:
            case Entry():
                entries.append(_entry_out(row))
            case Sent():
                attempts[row.part, row.number, row.attempt] = asdict(row)
            case Ended():
                attempt = attempts[row.part, row.number, row.attempt]
                attempt |= {name: getattr(row, name) for name in ENDED_WRITTEN}
            case Kept():
                candidates.append(asdict(row))
    return {
        "format": FORMAT,
        "version": VERSION,
        "run": {name: getattr(run, name) for name in RUN_FIELDS},
        "entries": entries,
        "attempts": list(attempts.values()),
        "candidates": candidates,
    }


def import_run(store: Store, document: object) -> StoredRun:
    """Put an exported run into a store; one that was running is paused there.

    Raises `RunExists`, and `JournalError` saying what is wrong with the document and where.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise JournalError(f'this is no exported run: its "format" should be "{FORMAT}"')
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        raise JournalError(
            f"this run was exported as version {version}, this evolverpc reads {VERSION}; upgrade evolverpc"
        )
    try:
        read = _Document.model_validate(document)
    except ValidationError as error:
        raise JournalError(f"this exported run is malformed: {_mistakes(error)}") from None
    told = {name: getattr(read.run, name) for name in RUN_FIELDS}
    if read.run.status == "running":
        told |= {"status": "paused", "reason": "it was running when it was exported"}
    run = StoredRun(**told, wish=None, claim=Claim(None, 0), driver=None)
    try:
        store.create(run, _rows(read))
    except NumberTaken:
        raise JournalError("this exported run is malformed: it has two different rows of one number") from None
    return store.run(run.id)


def _entry_out(entry: Entry) -> dict[str, Any]:
    told = {field.name: getattr(entry, field.name) for field in fields(entry) if field.name != "answer"}
    try:
        value = orjson.loads(entry.answer)
        if orjson.dumps(value) == entry.answer:
            return {**told, "answer": value}
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass  # what orjson does not read or write (deep, or with lone surrogates) goes as text
    try:
        return {**told, "answer_text": entry.answer.decode()}
    except UnicodeDecodeError as error:
        raise JournalError(f"the answer of {entry.part} {entry.number} is not text") from error


def _rows(document: _Document) -> Iterator[Row]:
    yield from _attempts_in(document.attempts)
    yield from (entry.entry() for entry in document.entries)
    for candidate in document.candidates:
        yield Kept(**{field.name: getattr(candidate, field.name) for field in fields(Kept)})


def _attempts_in(attempts: Iterable[_Attempt]) -> Iterator[Row]:
    for attempt in attempts:
        yield Sent(**{name: getattr(attempt, name) for name in SENT_FIELDS})
        if attempt.outcome is not None:
            numbers = (attempt.part, attempt.number, attempt.attempt)
            yield Ended(*numbers, **{name: getattr(attempt, name) for name in ENDED_WRITTEN})


def _checked(text: str) -> None:
    """Raises `ValueError` for what is not JSON; what orjson does not read, the slower reader may."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            json.loads(text)
        except RecursionError:
            raise ValueError("`answer_text` is nested too deep") from None


def _mistakes(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{'.'.join(map(str, mistake['loc'])) or 'the document'}: {mistake['msg']}" for mistake in found]
    more = f", and {len(told) - SHOWN_MISTAKES} more" if len(told) > SHOWN_MISTAKES else ""
    return "; ".join(told[:SHOWN_MISTAKES]) + more
