"""A whole run as one JSON document, to be kept or taken up in another store."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from typing import Any

import orjson
from pydantic import ValidationError

from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import JournalError, NumberTaken
from gepa_client.journal.entries import Claim, Ended, Entry, Kept, Row, Sent, StoredRun
from gepa_client.journal.exported import Document, ExportedAttempt, ExportedRun, mistakes
from gepa_client.journal.records import ENDED_FIELDS, SENT_FIELDS
from gepa_client.journal.store import Store
from gepa_client.run.imported_settings import imported_settings

FORMAT = "evolverpc-run"
VERSION = 1

RUN_FIELDS = tuple(ExportedRun.model_fields)
ENDED_WRITTEN = tuple(name for name in ExportedAttempt.model_fields if name in ENDED_FIELDS)


def export_run(store: Store, run_id: str) -> dict[str, Any]:
    """The run as JSON values: everything the store knows of it but who drives it.

    Raises `JournalError` for an answer that is not text.
    """
    document: dict[str, Any] = json.loads("".join(exported(store, run_id)))
    return document


def exported(store: Store, run_id: str) -> Iterator[str]:
    """The same as the text of one JSON document, a row at a time; never more of it in memory than a page of rows.

    Raises: as `export_run`.
    """
    run = store.run(run_id)
    head = {"format": FORMAT, "version": VERSION, "run": {name: getattr(run, name) for name in RUN_FIELDS}}
    yield _json(head).removesuffix("}")
    separator = ""
    missing = ["attempts", "entries", "candidates"]
    end = ""
    for name, value in _rows_out(store.rows(run_id)):
        while name in missing:  # the first of its list, and those before it that are empty
            yield f'{end},\n"{missing.pop(0)}":['
            end = "]"
            separator = ""
        yield separator + _json(value)
        separator = ",\n"
    for name in missing:
        yield f'{end},\n"{name}":['
        end = "]"
    yield end
    yield "}"


def import_run(store: Store, document: object) -> StoredRun:
    """Put an exported run into a store; one that was running is paused there.

    Whoever wrote the document chooses nobody that is called here and no file that is written: such settings are left
    out, and so is the folder of its results (see `gepa_client.run.imported_settings`).

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
        config = imported_settings(read.run.config)
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


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _rows_out(rows: Iterable[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row with the list it belongs to: attempts (an `Ended` follows its `Sent`), then entries, then candidates."""
    attempt: dict[str, Any] | None = None
    for row in rows:
        if isinstance(row, Ended) and attempt is not None:
            attempt |= {name: getattr(row, name) for name in ENDED_WRITTEN}
            continue
        if attempt is not None:
            yield "attempts", attempt
            attempt = None
        match row:
            case Sent():
                attempt = asdict(row)
            case Entry():
                yield "entries", _entry_out(row)
            case Kept():
                yield "candidates", asdict(row)
    if attempt is not None:
        yield "attempts", attempt


def _entry_out(entry: Entry) -> dict[str, Any]:
    told = {
        field.name: getattr(entry, field.name) for field in fields(entry) if field.name not in ("answer", "omitted")
    }
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
