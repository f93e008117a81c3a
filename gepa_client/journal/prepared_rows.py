"""Writes rows of a journal into the tables of its run; entries get a checksum and a place among their writer's."""

from collections.abc import Iterable, Sequence

from gepa_client.errors import JournalError, NumberTaken
from gepa_client.journal.database import Record, Rows, Table
from gepa_client.journal.entries import STOP, Attempt, CandidateRecord, Entry, Row
from gepa_client.journal.stored_fields import (
    ATTEMPTS,
    CANDIDATES,
    ENTRIES,
    ENTRY_FIELDS,
    STARTED_FIELDS,
    WRITERS,
    candidate_bytes,
    checksum,
    ended_record,
    pack,
    plain,
    started_record,
)

SAME = {
    "attempts": (*STARTED_FIELDS, "owner"),
    "entries": ("kind", "digest", "about", "owner", "packed", "size", "answer"),
}
"""The columns that distinguish a repeated write of this process from another driver's row."""


class PreparedRows:
    """Rows ready to be written: compressed before the database is locked, so that a repetition costs no second time.

    `whole`: attempts that ended are added with their beginnings, else they are there already.
    """

    def __init__(self, rows: Iterable[Row], owner: str, *, whole: bool = False) -> None:
        self._owner = owner
        self._sent: list[Record] = []
        self._ended: list[Record] = []
        self._entries: list[Record] = []
        self._kept: list[Record] = []
        for row in rows:
            match row:
                case Attempt(outcome=None):
                    self._sent.append({**started_record(row), "owner": owner})
                case Attempt() if whole:
                    self._sent.append({**started_record(row), **ended_record(row), "owner": owner})
                case Attempt():
                    place = {"part": row.part, "number": row.number, "attempt": row.attempt}
                    self._ended.append({**place, **ended_record(row)})
                case CandidateRecord():
                    body, packed = pack(candidate_bytes(row))
                    self._kept.append({"number": row.index, "packed": packed, "size": len(body), "body": body})
                case Entry():
                    self._prepare(row)
        if whole:  # of the beginning and the end of an attempt the end holds both
            self._sent = list({tuple(each[name] for name in STARTED_FIELDS): each for each in self._sent}.values())

    def write(self, rows: Rows, key: int, run_id: str, *, looks: bool) -> None:
        """Write attempts that begin, then entries with what was paid for them, then the rest.

        So an entry that can be read is whole, and an answer is never lost while its attempt is known to have ended, in
        databases without transactions too. `looks`: whether some may be there already.

        Raises `NumberTaken`, `KeyTaken`, and `JournalError` for an end without a beginning.
        """
        for each in (*self._sent, *self._entries, *self._ended, *self._kept):
            each["run"] = key
        sent = self._sent
        if looks:
            sent = [sent[at] for at in _new(rows, ATTEMPTS, sent, run_id)[0]]
        rows.insert(ATTEMPTS, sent)
        written = self._insert_entries(rows, key, run_id, looks=looks)
        if not rows.update_each(ATTEMPTS, self._ended):
            raise JournalError(f"run {run_id}: an attempt that ended was never sent")
        for kept in self._kept:
            rows.delete(CANDIDATES, {"run": key, "number": kept["number"]})
            rows.insert(CANDIDATES, [kept])
        if written is not None:  # what is there beyond this number may be incomplete
            writer = {"run": key, "owner": self._owner}
            if not rows.update(WRITERS, writer, {"written": written}):
                rows.insert(WRITERS, [{**writer, "written": written}])

    def _insert_entries(self, rows: Rows, key: int, run_id: str, *, looks: bool) -> int | None:
        """Insert those that are new in the next places of their writer, and return how many it has written then."""
        if not self._entries:
            return None
        found = next(rows.find(WRITERS, {"run": key, "owner": self._owner}), None)
        written: int = 0 if found is None else found["written"]
        new = self._entries
        if looks:
            places, there = _new(rows, ENTRIES, new, run_id)
            new = [new[at] for at in places]
            written = max([written, *(each["seq"] + 1 for each in there if each["seq"] is not None)])
        for entry in new:
            entry["seq"] = None if entry["kind"] == STOP else written  # a stop may be deleted
            written += entry["seq"] is not None
            entry["checksum"] = checksum(entry)
        rows.insert(ENTRIES, new)
        return written

    def _prepare(self, row: Entry) -> None:
        answer, packed = pack(row.answer)
        self._entries.append(
            {
                **{name: getattr(row, name) for name in ENTRY_FIELDS},
                "about": plain(row.about),
                "owner": self._owner,
                "packed": packed,
                "size": len(answer),
                "answer": answer,
            }
        )


def _new(rows: Rows, table: Table, made: Sequence[Record], run_id: str) -> tuple[list[int], list[Record]]:
    """Return which of these are not there yet, and the rows that are.

    Raises:
        NumberTaken: a row that is there, or another one of these, is a different one of the same key.
    """
    there = [found for row in made for found in rows.find(table, table.of_key(row))]
    known = {table.place(found): found for found in there}
    new = list[int]()
    for at, row in enumerate(made):
        found = known.setdefault(table.place(row), row)
        if found is row:
            new.append(at)
        elif any(found[name] != row[name] for name in SAME[table.name]):
            place = " ".join(map(str, table.place(row)[1:]))
            raise NumberTaken(f"run {run_id}: another process has written {place} of {table.name}")
    return new, there
