"""Rows of data: read from a file or held by the server, and the loaders GEPA draws them from."""

import csv
import functools
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gepa_client.errors import RowsError
from gepa_client.journal.requests import digest_of
from gepa_client.transport.error_format import unreadable
from protocol import JsonValue


@dataclass(frozen=True)
class Row:
    """A row the optimizer holds; `data` is any JSON value and travels with every call."""

    id: str
    data: JsonValue

    @functools.cached_property
    def wire(self) -> dict[str, Any]:
        """`{id, data}`."""
        return {"id": self.id, "data": self.data}

    @functools.cached_property
    def digest(self) -> str:
        """A digest of `wire`, in hex; worked out once, as a row is asked for over and over."""
        return digest_of(self.wire)


@dataclass(frozen=True)
class HeldRow:
    """A row the server holds: only its name travels. `data` is what `list_examples` showed of it, else None."""

    id: str
    split: str
    data: JsonValue = None

    @functools.cached_property
    def wire(self) -> dict[str, Any]:
        """`{id, split}`."""
        return {"id": self.id, "split": self.split}

    @functools.cached_property
    def digest(self) -> str:
        """A digest of `wire`, in hex; worked out once, as a row is asked for over and over."""
        return digest_of(self.wire)


AnyRow = Row | HeldRow


def as_row(row: Any) -> AnyRow:
    """A row of ours as it is; anything else is data, its id a digest of its JSON.

    Raises:
        RowsError: it cannot be written as JSON.
    """
    if isinstance(row, Row | HeldRow):
        return row
    try:
        text = orjson.dumps(row)
    except TypeError as error:
        raise RowsError(f"an example cannot be written as JSON: {error}") from error
    return Row(hashlib.blake2b(text, digest_size=8).hexdigest(), row)


def load_rows(path: Path | str) -> list[Row]:
    """Rows from `.json` (an array), `.jsonl` or `.csv` (with a header; all values strings), ids "0", "1", ...

    Raises:
        RowsError: no such file, another format, malformed, or a row that is not a JSON object; the place is named.
    """
    path = Path(path)
    readers = {".json": _from_json, ".jsonl": _from_jsonl, ".csv": _from_csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise RowsError(f"{path}: rows are read from .jsonl, .json or .csv")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RowsError(unreadable(path, error)) from error
    rows = reader(path, text)
    if not rows:
        raise RowsError(f"{path}: holds no rows")
    return [Row(str(index), data) for index, data in enumerate(rows)]


def _from_json(path: Path, text: str) -> list[dict[str, JsonValue]]:
    values = _parsed(str(path), text)
    if not isinstance(values, list):
        raise RowsError(f"{path}: not an array of rows")
    return [_as_object(f"{path}: row {index}", value) for index, value in enumerate(values)]


def _from_jsonl(path: Path, text: str) -> list[dict[str, JsonValue]]:
    rows = []
    # by line feed alone: str.splitlines would also cut inside a string that holds U+2028
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"{path}: line {number}"
            rows.append(_as_object(place, _parsed(place, line)))
    return rows


def _from_csv(path: Path, text: str) -> list[dict[str, JsonValue]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[dict[str, JsonValue]] = []
    try:
        header = next(reader, [])
        if len(set(header)) != len(header) or not all(header):
            raise RowsError(f"{path}: the header has empty or repeated names: {header}")
        for values in reader:
            if not values:
                continue
            if len(values) != len(header):
                raise RowsError(f"{path}: line {reader.line_num} has {len(values)} values for {len(header)} columns")
            rows.append(dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise RowsError(f"{path}: line {reader.line_num}: {error}") from error
    return rows


def _parsed(place: str, text: str) -> JsonValue:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RowsError(f"{place}: {error}") from error


def _as_object(place: str, value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, Mapping):
        raise RowsError(f"{place} is not a JSON object")
    return dict(value)


class RowLoader:
    """A GEPA data loader over rows, its ids the integers from `first_id` on.

    Give the loaders of one run disjoint ranges: GEPA's cache would mix rows of the same id up.
    """

    def __init__(self, rows: Sequence[AnyRow], first_id: int = 0) -> None:
        self.rows = list(rows)
        self.first_id = first_id

    def all_ids(self) -> Sequence[int]:
        """Every id, in the order of the rows."""
        return range(self.first_id, self.first_id + len(self.rows))

    def fetch(self, ids: Sequence[int]) -> list[AnyRow]:
        """The rows of these ids, in their order."""
        return [self.rows[self._position(row_id)] for row_id in ids]

    def _position(self, row_id: int) -> int:
        position = row_id - self.first_id
        if not 0 <= position < len(self.rows):
            raise KeyError(f"no row with id {row_id}")
        return position

    def __len__(self) -> int:
        return len(self.rows)
