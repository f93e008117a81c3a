"""Journals in one SQLite file."""

import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gepa_client.errors import ClaimLost, NoSuchRun, RequestExists, RunExists
from gepa_client.journal.entries import (
    AttemptFinished,
    CandidateRecord,
    Claim,
    Entry,
    RequestOutcome,
    Row,
    Spending,
    SteeringRequest,
    StoredAttempt,
    StoredRun,
    now,
)
from gepa_client.journal.sqlite_file import PATIENCE_S, SqliteFile
from gepa_client.journal.sqlite_rows import (
    ATTEMPT_COLUMNS,
    RUN_COLUMNS,
    SCHEMA,
    PreparedRows,
    insert_into,
    run_of_row,
    run_row,
)
from gepa_client.journal.stored_fields import (
    PAGE,
    REQUEST_FIELDS,
    ChainLink,
    attempt_of,
    candidate_of,
    changes_record,
    checksum,
    decoding,
    one_page,
    plain,
    request_of,
    request_record,
    rows_of_attempt,
    run_record,
    spending_of,
    unpack,
)

_SELECT_RUNS = f"SELECT {', '.join(RUN_COLUMNS)} FROM runs"  # noqa: S608 (our own column names)
_SELECT_ATTEMPTS = f"SELECT rowid, {', '.join(ATTEMPT_COLUMNS)} FROM attempts"  # noqa: S608 (our own column names)

_PAGE_OF_ENTRIES = "FROM entries WHERE run = ? AND part = ? AND number >= ? ORDER BY number LIMIT ?"
_SELECT_ENTRIES = (
    "SELECT part, number, kind, digest, about, CASE WHEN LENGTH(answer) > ? THEN NULL ELSE answer END, LENGTH(answer),"
    f" packed {_PAGE_OF_ENTRIES}"
)
_SELECT_LINKS = f"SELECT number, kind, digest, about, owner, packed, answer, seq, link {_PAGE_OF_ENTRIES}"

_SELECT_REQUESTS = f"SELECT {', '.join(REQUEST_FIELDS)} FROM requests"  # noqa: S608 (our own column names)
_INSERT_REQUEST = insert_into("requests", ("run", *REQUEST_FIELDS))

_SUMS = (  # TOTAL, as SUM gives up where integers grow beyond 64 bits.
    "COUNT(*), TOTAL(examples), TOTAL(unpriced),"
    " TOTAL(CASE WHEN usage IS NULL AND examples > 0 THEN unpriced END), TOTAL(cost_usd),"
    " TOTAL(input_tokens), TOTAL(output_tokens), TOTAL(seconds)"
)


class SqliteStore:
    """A `Store` in the file at `path`, which is made if need be, its folder too.

    `patience_s`: how long to wait for the locks of others. Raises `StoreVersionDiffers`, `StoreUnavailable`, or
    `JournalError` where the file is something else.
    """

    def __init__(self, path: str | Path, *, patience_s: float = PATIENCE_S) -> None:
        self.url = str(path)
        self._file = SqliteFile(Path(path), SCHEMA, patience_s=patience_s)

    def create(self, run: StoredRun, rows: Iterable[Row] = ()) -> None:
        record = run_row(run_record(run))
        prepared = PreparedRows(rows, run.claim.owner or "")

        def work(connection: sqlite3.Connection) -> None:
            try:
                cursor = connection.execute(insert_into("runs", RUN_COLUMNS), [record[name] for name in RUN_COLUMNS])
            except sqlite3.IntegrityError as error:
                raise RunExists(f"{self.url} holds a run {run.id} already") from error
            prepared.write(connection, int(cursor.lastrowid or 0), run.id)

        self._file.transaction(work)

    def run(self, run_id: str) -> StoredRun:
        found = self._runs("WHERE id = ?", [run_id])
        if not found:
            raise self._no_such_run(run_id)
        return found[0]

    def runs(self) -> list[StoredRun]:
        return self._runs("ORDER BY created DESC, key DESC", [])

    def update(self, run_id: str, changes: Mapping[str, Any], *, owner: str | None = None) -> None:
        def work(connection: sqlite3.Connection) -> None:
            key = self._key(connection, run_id) if owner is None else self._owned(connection, run_id, owner)
            _set(connection, key, run_row(changes_record(changes)))

        self._file.transaction(work)

    def claim(self, run_id: str, seen: Claim, owner: str, driver: str) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            key = self._key(connection, run_id)
            cursor = connection.execute(
                "UPDATE runs SET owner = ?, driver = ?, beat = beat + 1, updated = ?"
                " WHERE key = ? AND owner IS ? AND beat = ?",
                [owner, plain(driver), now(), key, seen.owner, seen.beat],
            )
            return cursor.rowcount == 1

        return self._file.transaction(work)

    def beat(self, run_id: str, owner: str, changes: Mapping[str, Any]) -> str | None:
        def work(connection: sqlite3.Connection) -> str | None:
            key = self._owned(connection, run_id, owner)
            _set(connection, key, run_row(changes_record(changes)))
            connection.execute("UPDATE runs SET beat = beat + 1 WHERE key = ?", [key])
            requested_action: str | None = connection.execute(
                "SELECT requested_action FROM runs WHERE key = ?", [key]
            ).fetchone()[0]
            return requested_action

        return self._file.transaction(work)

    def release(self, run_id: str, owner: str) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE runs SET owner = NULL, driver = NULL, beat = beat + 1, updated = ? WHERE key = ? AND owner = ?",
                [now(), self._key(connection, run_id), owner],
            )

        self._file.transaction(work)

    def write(self, run_id: str, owner: str, rows: Sequence[Row]) -> None:
        prepared = PreparedRows(rows, owner)
        self._file.transaction(
            lambda connection: prepared.write(connection, self._owned(connection, run_id, owner), run_id)
        )

    def entries(
        self, run_id: str, part: str, start: int = 0, limit: int = PAGE, *, largest: int | None = None
    ) -> list[Entry]:
        most = sys.maxsize if largest is None else largest

        def work(connection: sqlite3.Connection) -> list[Entry]:
            parameters = [most, self._key(connection, run_id), part, start, limit]
            entries = (_entry(row, most) for row in connection.execute(_SELECT_ENTRIES, parameters))
            return one_page(entries, lambda entry: len(entry.answer))

        return self._file.read(work)

    def links(self, run_id: str, part: str, start: int = 0, limit: int = PAGE) -> list[ChainLink]:
        def link_of(row: Sequence[Any]) -> tuple[ChainLink, int]:
            number, kind, digest, about, owner, packed, answer, seq, link = row
            with decoding(f"{part} {number}"):
                seal = checksum(part, number, kind, digest, about, packed=bool(packed), data=answer)
            return ChainLink(number, owner, seq, link, seal), len(answer)

        def work(connection: sqlite3.Connection) -> list[ChainLink]:
            rows = connection.execute(_SELECT_LINKS, [self._key(connection, run_id), part, start, limit])
            return [link for link, _ in one_page(map(link_of, rows), lambda found: found[1])]

        return self._file.read(work)

    def chains(self, run_id: str) -> dict[str, int]:
        return dict(self._rows("SELECT owner, length FROM chains WHERE run = ?", run_id))

    def entries_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[Entry]:
        def work(connection: sqlite3.Connection) -> list[Entry]:
            rows = connection.execute(
                "SELECT part, number, kind, digest, about, answer, LENGTH(answer), packed FROM entries"
                " WHERE run = ? AND part = ? AND number IN (SELECT value FROM json_each(?)) ORDER BY number",
                [self._key(connection, run_id), part, json.dumps(list(numbers))],
            )
            return one_page(map(_entry, rows), lambda entry: len(entry.answer))

        return self._file.read(work)

    def parts(self, run_id: str) -> dict[str, int]:
        return dict(self._rows("SELECT part, COUNT(*) FROM entries WHERE run = ? GROUP BY part ORDER BY part", run_id))

    def drop(self, run_id: str, part: str, kind: str) -> None:
        self._file.transaction(
            lambda connection: connection.execute(
                "DELETE FROM entries WHERE run = ? AND part = ? AND kind = ?",
                [self._key(connection, run_id), part, kind],
            )
        )

    def attempts(self, run_id: str, part: str, start: int = 0) -> list[StoredAttempt]:
        where = "WHERE run = ? AND part = ? AND number >= ? ORDER BY number, attempt"
        rows = self._rows(f"{_SELECT_ATTEMPTS} {where}", run_id, part, start)
        return [attempt_of(dict(zip(ATTEMPT_COLUMNS, row[1:], strict=True))) for row in rows]

    def failed_attempts(self, run_id: str) -> list[tuple[str, int, int]]:
        return self._rows(
            "SELECT part, number, COALESCE(examples, 1) FROM attempts WHERE run = ?"
            " AND (outcome IS NULL OR outcome IN ('program_error', 'timeout') OR (examples > 1 AND outcome != 'ok'))"
            " ORDER BY part, number, attempt",
            run_id,
        )

    def spending(self, run_id: str) -> list[Spending]:
        select = f"SELECT kind, outcome, {_SUMS} FROM attempts"  # noqa: S608 (constants)
        rows = self._rows(f"{select} WHERE run = ? GROUP BY kind, outcome ORDER BY kind, outcome", run_id)
        return [spending_of(kind, outcome, sums) for kind, outcome, *sums in rows]

    def spending_at(self, run_id: str, kind: str) -> dict[str, list[Spending]]:
        select = f"SELECT endpoint, outcome, {_SUMS} FROM attempts"  # noqa: S608 (constants)
        where = "WHERE run = ? AND kind = ? GROUP BY endpoint, outcome ORDER BY endpoint, outcome"
        rows = self._rows(f"{select} {where}", run_id, kind)
        found: dict[str, list[Spending]] = {}
        for endpoint, outcome, *sums in rows:
            found.setdefault(endpoint, []).append(spending_of(kind, outcome, sums))
        return found

    def finished_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[AttemptFinished]:
        where = "WHERE run = ? AND part = ? AND number IN (SELECT value FROM json_each(?)) ORDER BY number, attempt"
        found = self._rows(f"{_SELECT_ATTEMPTS} {where}", run_id, part, json.dumps(list(numbers)))
        rows = (row for one in found for row in rows_of_attempt(dict(zip(ATTEMPT_COLUMNS, one[1:], strict=True))))
        return [row for row in rows if isinstance(row, AttemptFinished)]

    def candidates(self, run_id: str, start: int = 0) -> list[CandidateRecord]:
        select = "SELECT body, packed FROM candidates WHERE run = ? AND number >= ? ORDER BY number"
        rows = self._rows(select, run_id, start)
        return [candidate_of(unpack(body, packed)) for body, packed in rows]

    def attempt_rows(self, run_id: str) -> Iterator[Row]:
        page, after = f"{_SELECT_ATTEMPTS} WHERE run = ? AND rowid > ? ORDER BY rowid LIMIT ?", 0
        while found := self._rows(page, run_id, after, PAGE):  # in the order they were written
            for record in found:
                yield from rows_of_attempt(dict(zip(ATTEMPT_COLUMNS, record[1:], strict=True)))
            after = found[-1][0]

    def add_request(self, run_id: str, request: SteeringRequest) -> None:
        record = request_record(request)

        def work(connection: sqlite3.Connection) -> None:
            key = self._key(connection, run_id)
            found = connection.execute("SELECT action FROM requests WHERE run = ? AND id = ?", [key, record["id"]])
            if (row := found.fetchone()) is None:
                connection.execute(_INSERT_REQUEST, [key, *(record[name] for name in REQUEST_FIELDS)])
            elif row[0] != record["action"]:
                raise RequestExists(f"run {run_id} has another request {request.id}")

        self._file.transaction(work)

    def requests(self, run_id: str, *, waiting: bool = False) -> list[SteeringRequest]:
        where = "WHERE run = ? AND outcome IS NULL" if waiting else "WHERE run = ?"
        rows = self._rows(f"{_SELECT_REQUESTS} {where} ORDER BY rowid", run_id)
        return [request_of(dict(zip(REQUEST_FIELDS, row, strict=True))) for row in rows]

    def answer_request(
        self,
        run_id: str,
        request_id: str,
        outcome: RequestOutcome,
        *,
        number: int | None = None,
        reason: str | None = None,
    ) -> None:
        self._file.transaction(
            lambda connection: connection.execute(
                "UPDATE requests SET outcome = ?, number = ?, reason = ? WHERE run = ? AND id = ? AND outcome IS NULL",
                [outcome, number, plain(reason), self._key(connection, run_id), request_id],
            )
        )

    def close(self) -> None:
        self._file.close()

    def _runs(self, where: str, parameters: Sequence[Any]) -> list[StoredRun]:
        select = f"{_SELECT_RUNS} {where}"
        rows = self._file.read(lambda connection: connection.execute(select, parameters).fetchall())
        return [run_of_row(row) for row in rows]

    def _rows(self, select: str, run_id: str, *parameters: Any) -> list[Any]:
        """Return the rows that a statement selects, whose first parameter is the run's key."""
        return self._file.read(
            lambda connection: connection.execute(select, [self._key(connection, run_id), *parameters]).fetchall()
        )

    def _key(self, connection: sqlite3.Connection, run_id: str) -> int:
        row = connection.execute("SELECT key FROM runs WHERE id = ?", [run_id]).fetchone()
        if row is None:
            raise self._no_such_run(run_id)
        return int(row[0])

    def _owned(self, connection: sqlite3.Connection, run_id: str, owner: str) -> int:
        row = connection.execute("SELECT key, owner, driver FROM runs WHERE id = ?", [run_id]).fetchone()
        if row is None:
            raise self._no_such_run(run_id)
        key, driving, driver = row
        if (driving or "") != owner:
            raise ClaimLost(f"run {run_id} is driven by {driver or 'no process'} now")
        return int(key)

    def _no_such_run(self, run_id: str) -> NoSuchRun:
        return NoSuchRun(f"{self.url} holds no run {run_id}")


def _entry(row: Sequence[Any], largest: int = sys.maxsize) -> Entry:
    part, number, kind, digest, about, answer, size, packed = row
    if answer is not None:
        answer = unpack(answer, packed)
        size = len(answer)
    fields = (part, number, kind, digest, about)
    return Entry(*fields, answer) if size <= largest else Entry(*fields, b"", size)


def _set(connection: sqlite3.Connection, key: int, record: dict[str, Any]) -> None:
    assignments = ", ".join(f"{name} = ?" for name in record)
    connection.execute(f"UPDATE runs SET {assignments} WHERE key = ?", [*record.values(), key])  # noqa: S608 (checked names)
