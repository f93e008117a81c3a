"""How runs, attempts and candidates are laid out in any store: flat records, mappings as JSON, long bytes packed."""

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, overload

from gepa_client.errors import StoreDamaged
from gepa_client.journal.entries import Attempt, Claim, Ended, Kept, Sent, StoredRun
from protocol import JsonValue

PACK_ABOVE = 4096
"""Bytes. What is longer is compressed, if that makes it shorter."""

JSON_FIELDS = frozenset({"config", "identity", "counters", "best", "parent"})
RUN_FIELDS = tuple(field.name for field in fields(StoredRun) if field.name != "claim")
CHANGEABLE = frozenset(RUN_FIELDS) - {"id", "updated"}
SENT_FIELDS = ("part", "number", "attempt", "kind", "endpoint", "instance")
ENDED_FIELDS = ("outcome", "seconds", "usage", "cost_usd", "input_tokens", "output_tokens", "examples", "unpriced")
LARGEST_INTEGER = 2**63 - 1
LARGEST_AMOUNT = 1e100
"""What is larger is no amount of anything, and would leave sums without an end."""

Record = dict[str, Any]


def now() -> str:
    """The time for people to read: ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def begun(
    run_id: str,
    *,
    name: str | None,
    config: dict[str, Any],
    output: str | None = None,
    parent: dict[str, JsonValue] | None = None,
) -> StoredRun:
    """A run that nobody has driven yet; `config`: its settings as they are recorded."""
    moment = now()
    return StoredRun(
        id=run_id,
        name=name,
        status="pending",
        reason=None,
        config=config,
        identity=None,
        counters={},
        best=None,
        output=output,
        parent=parent,
        wish=None,
        claim=Claim(None, 0),
        driver=None,
        created=moment,
        updated=moment,
    )


def pack(data: bytes) -> tuple[bytes, bool]:
    """Bytes as they are kept, and whether they were compressed; level 1, as the writer must not lag behind the run."""
    if len(data) > PACK_ABOVE:
        packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            return packed, True
    return data, False


def unpack(data: bytes, packed: bool) -> bytes:
    """What was given to `pack`. Raises `StoreDamaged`."""
    with reading("compressed data"):
        return zlib.decompress(data) if packed else data


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise `StoreDamaged` for data that cannot be decoded."""
    try:
        yield
    except (ValueError, TypeError, zlib.error) as error:
        raise StoreDamaged(f"the store is damaged: {what} cannot be read ({error})") from error


@overload
def plain(text: str) -> str: ...
@overload
def plain(text: str | None) -> str | None: ...
def plain(text: str | None) -> str | None:
    """Text that any store takes: a lone surrogate, which UTF-8 cannot say, becomes its escape."""
    return text if text is None or text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def to_json(value: object) -> str:
    """JSON in ASCII with keys in their own order: no store can choke on it."""
    return json.dumps(value, separators=(",", ":"))


def changes_record(changes: Mapping[str, Any]) -> Record:
    """Fields to replace as a record, `updated` among them. Raises `ValueError` for a field that cannot be replaced."""
    if unknown := sorted(set(changes) - CHANGEABLE):
        raise ValueError(f"a run's {', '.join(unknown)} cannot be replaced; only {', '.join(sorted(CHANGEABLE))}")
    return {**{name: _laid_out(name, value) for name, value in changes.items()}, "updated": now()}


def run_record(run: StoredRun) -> Record:
    """A run as a record; its claim as `owner` and `beat`."""
    record = {name: _laid_out(name, getattr(run, name)) for name in RUN_FIELDS}
    return {**record, "owner": run.claim.owner, "beat": run.claim.beat}


def run_of(record: Mapping[str, Any]) -> StoredRun:
    """The run of a record."""
    with reading(f"the record of run {record['id']}"):
        values = {name: _read(name, record[name]) for name in RUN_FIELDS}
    return StoredRun(**values, claim=Claim(record["owner"], record["beat"]))


def sent_record(sent: Sent, owner: str) -> Record:
    """An attempt that has not ended, stamped with who wrote it."""
    record = {name: getattr(sent, name) for name in SENT_FIELDS}
    return {**record, **dict.fromkeys(ENDED_FIELDS), "endpoint": plain(sent.endpoint), "owner": owner}


def ended_record(ended: Ended) -> Record:
    """What an attempt came to; the sums that are asked for lie beside the usage."""
    usage = ended.usage or {}
    return {
        "outcome": ended.outcome,
        "seconds": ended.seconds,
        "usage": None if ended.usage is None else to_json(ended.usage),
        "cost_usd": _amount(usage.get("cost_usd")),
        "input_tokens": _amount(usage.get("input_tokens")),
        "output_tokens": _amount(usage.get("output_tokens")),
        "examples": ended.examples,
        "unpriced": ended.unpriced,
    }


def attempt_of(record: Mapping[str, Any]) -> Attempt:
    """The attempt of a record."""
    return Attempt(**{name: record[name] for name in SENT_FIELDS}, outcome=record["outcome"])


def rows_of_attempt(record: Mapping[str, Any]) -> list[Sent | Ended]:
    """An attempt's record as the rows it was written from."""
    sent = Sent(**{name: record[name] for name in SENT_FIELDS})
    if record["outcome"] is None:
        return [sent]
    usage = None if record["usage"] is None else json.loads(record["usage"])
    ended = Ended(
        sent.part,
        sent.number,
        sent.attempt,
        record["outcome"],
        seconds=record["seconds"],
        usage=usage,
        examples=record["examples"],
        unpriced=record["unpriced"],
    )
    return [sent, ended]


def kept_bytes(kept: Kept) -> bytes:
    """A candidate as JSON."""
    return to_json({field.name: getattr(kept, field.name) for field in fields(kept)}).encode()


def kept_of(data: bytes) -> Kept:
    """The candidate of `kept_bytes`. Raises `StoreDamaged`."""
    with reading("a candidate"):
        return Kept(**json.loads(data))


def _laid_out(name: str, value: Any) -> Any:
    if name in JSON_FIELDS:
        return None if value is None else to_json(value)
    return plain(value)


def _read(name: str, value: Any) -> Any:
    return json.loads(value) if name in JSON_FIELDS and value is not None else value


def _amount(value: object) -> int | float | None:
    """A number that stores can add up; what a program calls its usage is its own affair."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST_AMOUNT:
        return None
    return float(value) if abs(value) > LARGEST_INTEGER else value
