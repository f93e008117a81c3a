"""Rows the server holds, read from `.json`, `.jsonl` or `.csv`, so that examples can be named instead of sent."""

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from protocol import DatasetInfo, Example, ListedExample, ListExamplesResult
from protocol.errors import UnknownExample
from rpc_server.rpc import wire

Row = dict[str, Any]
"""One example's `data`: a JSON object."""


class DatasetError(ValueError):
    """A file of rows cannot be used; the message names the file, and the line where there is one."""


class Datasets:
    """The splits a server holds. A row's id is its position in its file, from `"0"`."""

    def __init__(self, splits: Mapping[str, Sequence[Row]] | None = None, *, share_rows: bool = True) -> None:
        self._splits = dict(splits or {})
        self._share_rows = share_rows
        self.infos = {split: DatasetInfo(size=len(rows), digest=_digest(rows)) for split, rows in self._splits.items()}

    def __bool__(self) -> bool:
        return bool(self._splits)

    def list(self, split: str, *, offset: int, limit: int) -> ListExamplesResult:
        """One page; the rows' data only where rows are shared. Raises `UnknownExample` for an unknown split."""
        rows = self._splits.get(split)
        if rows is None:
            raise UnknownExample("unknown split", split=split, ids=[])
        page = range(offset, min(offset + limit, len(rows)))
        if self._share_rows:
            examples = [ListedExample(id=str(position), split=split, data=rows[position]) for position in page]
        else:
            examples = [ListedExample(id=str(position), split=split) for position in page]
        return ListExamplesResult(examples=examples, total=len(rows))

    def filled(self, batch: Sequence[Example]) -> Sequence[Example]:
        """The same examples with the rows in place of `{id, split}`.

        Raises:
            UnknownExample: with a `split` and the `ids` it does not have.
        """
        named = [example for example in batch if "split" in example.model_fields_set]
        if not named:
            return batch
        self._check_known(named)
        return [
            Example(id=example.id, data=self._splits[example.split][int(example.id)])
            if "split" in example.model_fields_set
            else example
            for example in batch
        ]

    def _check_known(self, named: Sequence[Example]) -> None:
        for split in dict.fromkeys(example.split for example in named):
            size = len(self._splits.get(split, ()))
            unknown = [example.id for example in named if example.split == split and not _is_position(example.id, size)]
            if unknown:
                raise UnknownExample(split=split, ids=unknown)


def read_rows(path: Path) -> list[Row]:
    """The rows of one file, by its ending; raises `DatasetError`."""
    readers = {".json": _json_rows, ".jsonl": _jsonl_rows, ".csv": _csv_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(f"{path}: rows are read from .json, .jsonl or .csv")
    try:
        rows = reader(path, path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not UTF-8 (byte {error.start})") from None
    if not rows:
        raise DatasetError(f"{path}: holds no rows")
    return rows


def _json_rows(path: Path, text: str) -> list[Row]:
    try:
        rows = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DatasetError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from None
    if not isinstance(rows, list):
        raise DatasetError(f"{path}: a .json file of rows is an array of objects")
    for position, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DatasetError(f"{path}, row {position}: not a JSON object")
    return rows


def _jsonl_rows(path: Path, text: str) -> list[Row]:
    rows = []
    # Not splitlines(): JSON strings may hold U+2028 and its like as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise DatasetError(f"{path}, line {number}: not JSON: {error.msg}") from None
        if not isinstance(row, dict):
            raise DatasetError(f"{path}, line {number}: not a JSON object")
        rows.append(row)
    return rows


def _csv_rows(path: Path, text: str) -> list[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    try:
        header = next(reader, [])
        if len(set(header)) != len(header):
            raise DatasetError(f"{path}, line 1: a column name appears twice")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise DatasetError(
                    f"{path}, line {reader.line_num}: {len(cells)} cells under {len(header)} column names"
                )
            rows.append(dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise DatasetError(f"{path}, line {reader.line_num}: {error}") from None
    return rows


def _is_position(row_id: str, size: int) -> bool:
    """Only the canonical form of a position is an id: "01" and "1" would be one row under two names."""
    return row_id.isdecimal() and str(int(row_id)) == row_id and int(row_id) < size


def _digest(rows: Sequence[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(wire.canonical(row))
        digest.update(b"\n")
    return digest.hexdigest()
