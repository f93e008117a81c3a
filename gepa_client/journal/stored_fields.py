"""The rows of runs in any store: their fields, the checksums of entries, and how they are written."""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar, overload

from gepa_client.errors import JournalError, NumberTaken, StoreDamaged
from gepa_client.journal.database import Record, Rows, Table
from gepa_client.journal.entries import (
    STOP,
    Attempt,
    Claim,
    Entry,
    Row,
    Spending,
    SteeringRequest,
    StoredRun,
    now,
    unreported_results,
)
from gepa_client.transport.calls import FailedTry

PAGE = 512
PAGE_BYTES = 8 << 20
"""A page ends at either."""

PACK_ABOVE = 4096
"""Bytes. What is longer is compressed, if that makes it shorter."""

TIME_FIELDS = frozenset({"created", "updated", "started", "completed"})
"""Fields of a run that hold a time as `now` writes it."""

OVER = frozenset({"completed", "failed", "cancelled"})
"""Statuses of a run that ended; `completed` is set exactly while a run has one of them."""

RUN_FIELDS = tuple(field.name for field in fields(StoredRun) if field.name != "claim")
CHANGEABLE = frozenset(RUN_FIELDS) - {"id", "updated"}
STARTED_FIELDS = ("part", "number", "attempt", "kind", "endpoint", "instance")
SUMMED = ("examples", "unpriced", "silent", "cost_usd", "input_tokens", "output_tokens", "seconds")
REQUEST_FIELDS = ("id", "action", "author", "created", "outcome", "number", "reason")
ENTRY_FIELDS = ("part", "number", "kind", "digest", "about", "candidate", "row")

RUNS = Table(
    "runs",
    ("id",),
    ("key", *RUN_FIELDS, "owner", "beat"),
    json=frozenset({"config", "identity", "counters", "best", "parent"}),
    times=TIME_FIELDS,
)
"""The rows of other tables name a run by its `key`."""

ENTRIES = Table(
    "entries",
    ("run", "part", "number"),
    ("run", *ENTRY_FIELDS, "owner", "packed", "size", "answer", "seq", "checksum"),
    blob="answer",
)
WRITERS = Table("writers", ("run", "owner"), ("run", "owner", "written"))
ATTEMPTS = Table(
    "attempts",
    ("run", "part", "number", "attempt"),
    ("run", *STARTED_FIELDS, "outcome", "usage", *SUMMED, "failed", "owner"),
)
"""`silent`: `unpriced` of an attempt with results and without usage. `failed`: JSON, None if no example failed."""

REQUESTS = Table("requests", ("run", "id"), ("run", "place", *REQUEST_FIELDS))
"""`place`: in the order of arrival, as clocks of two users do not order their requests."""

OF_RUNS = (ENTRIES, WRITERS, ATTEMPTS, REQUESTS)

CHECKSUM_BYTES = 16
LARGEST_INTEGER = 2**63 - 1
LARGEST_AMOUNT = 1e100
"""What is larger is no amount of anything, and would leave sums without an end."""

T = TypeVar("T")
SAME = {
    "attempts": (*STARTED_FIELDS, "owner"),
    "entries": ("kind", "digest", "about", "owner", "packed", "size", "answer"),
}
"""The columns that distinguish a repeated write of this process from another driver's row."""


def pack(data: bytes) -> tuple[bytes, bool]:
    """Bytes as they are kept, and whether they were compressed; level 1, as the writer must not lag behind the run."""
    if len(data) > PACK_ABOVE:
        packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            return packed, True
    return data, False


def unpack(data: bytes, packed: bool) -> bytes:
    """Return what was given to `pack`. Raises `StoreDamaged`."""
    with decoding("stored data"):
        return zlib.decompress(data) if packed or not isinstance(data, bytes) else data


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Raise `StoreDamaged` for data that cannot be decoded."""
    try:
        yield
    except (ValueError, TypeError, LookupError, zlib.error) as error:
        raise StoreDamaged(f"the store is damaged: {what} cannot be read ({error})") from error


@overload
def plain(text: str) -> str: ...
@overload
def plain(text: str | None) -> str | None: ...
def plain(text: str | None) -> str | None:
    """Return text that any store accepts: a lone surrogate, which UTF-8 cannot encode, becomes its escape."""
    return text if text is None or text.isascii() else text.encode("utf-8", "backslashreplace").decode()


to_json = json.JSONEncoder(separators=(",", ":")).encode
"""Returns a value as JSON in ASCII, with keys in their own order, which any store accepts."""


def changes_record(changes: Mapping[str, Any]) -> Record:
    """Fields to replace as a record, `updated` among them. Raises `ValueError` for a field that cannot be replaced.

    With a new status, `completed` follows from it unless it is given.
    """
    if unknown := sorted(set(changes) - CHANGEABLE):
        raise ValueError(f"a run's {', '.join(unknown)} cannot be replaced; only {', '.join(sorted(CHANGEABLE))}")
    record = {name: _plain(value) for name, value in changes.items()} | {"updated": now()}
    if "status" in changes:
        record.setdefault("completed", record["updated"] if changes["status"] in OVER else None)
    return record


def run_record(run: StoredRun) -> Record:
    """Return a run as a record; its claim as `owner` and `beat`, JSON and times as in `StoredRun`."""
    record = {name: _plain(getattr(run, name)) for name in RUN_FIELDS}
    return {**record, "owner": run.claim.owner, "beat": run.claim.beat}


def run_of(record: Mapping[str, Any]) -> StoredRun:
    """Return the run of a record."""
    values = {name: record[name] for name in RUN_FIELDS}
    return StoredRun(**values, claim=Claim(record["owner"], record["beat"]))


def started_record(made: Attempt) -> Record:
    """Return the beginning of an attempt as a record."""
    return {name: getattr(made, name) for name in STARTED_FIELDS} | {"endpoint": plain(made.endpoint)}


def ended_record(made: Attempt) -> Record:
    """Return the end of an attempt as a record; the amounts that are summed stand beside the usage."""
    usage = made.usage or {}
    return {
        "outcome": made.outcome,
        "seconds": made.seconds,
        "usage": None if made.usage is None else to_json(made.usage),
        "cost_usd": _amount(usage.get("cost_usd")),
        "input_tokens": _amount(usage.get("input_tokens")),
        "output_tokens": _amount(usage.get("output_tokens")),
        "examples": made.examples,
        "unpriced": made.unpriced,
        "silent": made.unpriced if made.usage is None and made.examples else 0,
        "failed": to_json([asdict(each) for each in made.failed]) if made.failed else None,
    }


def attempt_of(record: Mapping[str, Any]) -> Attempt:
    """Return the attempt of a record."""
    made = Attempt(*(record[name] for name in STARTED_FIELDS))
    if record["outcome"] is None:
        return made
    usage = None if record["usage"] is None else json.loads(record["usage"])
    failed = [FailedTry(**each) for each in json.loads(record["failed"] or "[]")]
    figures = {name: record[name] for name in ("outcome", "seconds", "examples", "unpriced")}
    return replace(made, usage=usage, failed=failed, **figures)


def spending_of(kind: str, outcome: str | None, sums: Record) -> Spending:
    """Return the totals of attempts from their number and the sums of `SUMMED`."""
    examples, unpriced = int(sums["examples"]), int(sums["unpriced"])
    unreported = unreported_results(kind, None, examples, int(sums["silent"]))
    tokens = int(sums["input_tokens"]), int(sums["output_tokens"])
    numbers = sums["count"], examples, unpriced, unreported
    return Spending(kind, outcome, *numbers, sums["cost_usd"], *tokens, sums["seconds"])


def one_page(found: Iterable[T], size: Callable[[T], int]) -> list[T]:
    """Return the first of these, until their sizes reach `PAGE_BYTES`."""
    page: list[T] = []
    total = 0
    for each in found:
        page.append(each)
        total += size(each)
        if total >= PAGE_BYTES:
            break
    return page


def request_record(request: SteeringRequest) -> Record:
    """Return a user's request as a record."""
    return {
        **{name: _plain(getattr(request, name)) for name in REQUEST_FIELDS},
        "action": to_json(request.action),
    }


def request_of(record: Mapping[str, Any]) -> SteeringRequest:
    """Return the request of a record. Raises `StoreDamaged`."""
    with decoding(f"request {record['id']}"):
        action = json.loads(record["action"])
    return SteeringRequest(**{name: record[name] for name in REQUEST_FIELDS if name != "action"}, action=action)


def _plain(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value


def _amount(value: object) -> int | float | None:
    """Return a number that stores can sum, None for any other value that a program reports as usage."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST_AMOUNT:
        return None
    return float(value) if abs(value) > LARGEST_INTEGER else value


@dataclass(frozen=True, slots=True)
class Seal:
    """Whether an entry is what was written, and its place among those of its writer.

    `seq`: from 0 in the order of writing; None for a stop, which may be deleted and has no place.
    """

    number: int
    owner: str
    seq: int | None
    sound: bool


def checksum(row: Mapping[str, Any]) -> str:
    """Return a checksum of an entry as stored, with its writer and its place."""
    fields_ = [row[name] for name in (*ENTRY_FIELDS, "owner", "seq")]
    hashed = hashlib.blake2b(to_json([*fields_, bool(row["packed"])]).encode(), digest_size=CHECKSUM_BYTES)
    hashed.update(row["answer"])
    return hashed.hexdigest()


class PreparedRows:
    """Rows ready to be written: compressed before the database is locked, so that a repetition costs no second time.

    `whole`: attempts that ended are added with their beginnings, else they are there already.
    """

    def __init__(self, rows: Iterable[Row], owner: str, *, whole: bool = False) -> None:
        self._owner = owner
        self._sent: list[Record] = []
        self._ended: list[Record] = []
        self._entries: list[Record] = []
        for row in rows:
            match row:
                case Attempt(outcome=None):
                    self._sent.append({**started_record(row), "owner": owner})
                case Attempt() if whole:
                    self._sent.append({**started_record(row), **ended_record(row), "owner": owner})
                case Attempt():
                    place = {"part": row.part, "number": row.number, "attempt": row.attempt}
                    self._ended.append({**place, **ended_record(row)})
                case Entry():
                    self._prepare(row)
        if whole:  # of the beginning and the end of an attempt the end holds both
            self._sent = list({tuple(each[name] for name in STARTED_FIELDS): each for each in self._sent}.values())

    def write(self, rows: Rows, key: int, run_id: str, *, looks: bool) -> None:
        """Write attempts that begin, then entries with what was paid for them, then attempts that ended.

        So an entry that can be read is whole, and an answer is never lost while its attempt is known to have ended, in
        databases without transactions too. `looks`: whether some may be there already.

        Raises `NumberTaken`, `KeyTaken`, and `JournalError` for an end without a beginning.
        """
        for each in (*self._sent, *self._entries, *self._ended):
            each["run"] = key
        sent = self._sent
        if looks:
            sent = [sent[at] for at in _new(rows, ATTEMPTS, sent, run_id)[0]]
        rows.insert(ATTEMPTS, sent)
        written = self._insert_entries(rows, key, run_id, looks=looks)
        if not rows.update_each(ATTEMPTS, self._ended):
            raise JournalError(f"run {run_id}: an attempt that ended was never sent")
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
