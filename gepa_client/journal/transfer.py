"""A whole run as one JSON document, to be kept or taken up in another store."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from typing import Any

import orjson
from pydantic import ValidationError

from gepa_client.errors import JournalError, NumberTaken
from gepa_client.journal.entries import Claim, Ended, Entry, Kept, Row, Sent, StoredRun
from gepa_client.journal.exported import Document, ExportedAttempt, ExportedRun, mistakes
from gepa_client.journal.records import ENDED_FIELDS, SENT_FIELDS
from gepa_client.journal.store import Store
from gepa_client.run.settings import SettingsError
from gepa_client.run.taken_in import taken_in

FORMAT = "evolverpc-run"
VERSION = 1

RUN_FIELDS = tuple(ExportedRun.model_fields)
ENDED_WRITTEN = tuple(name for name in ExportedAttempt.model_fields if name in ENDED_FIELDS)


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

    Whoever wrote the document chooses nobody that is called here and no file that is written: such settings are left
    out, and so is the folder of its results (see `gepa_client.run.taken_in`).

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
        read = Document.model_validate(document)
        config = taken_in(read.run.config)
    except ValidationError as error:
        raise JournalError(f"this exported run is malformed: {mistakes(error, 'the document')}") from None
    except SettingsError as error:
        raise JournalError(f"this exported run is malformed: run.config: {error}") from None
    told = {name: document["run"][name] for name in RUN_FIELDS} | {"config": config, "output": None}
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


def _rows(document: Document) -> Iterator[Row]:
    yield from _attempts_in(document.attempts)
    yield from (entry.entry() for entry in document.entries)
    for candidate in document.candidates:
        yield Kept(**{field.name: getattr(candidate, field.name) for field in fields(Kept)})


def _attempts_in(attempts: Iterable[ExportedAttempt]) -> Iterator[Row]:
    for attempt in attempts:
        yield Sent(**{name: getattr(attempt, name) for name in SENT_FIELDS})
        if attempt.outcome is not None:
            numbers = (attempt.part, attempt.number, attempt.attempt)
            yield Ended(*numbers, **{name: getattr(attempt, name) for name in ENDED_WRITTEN})
