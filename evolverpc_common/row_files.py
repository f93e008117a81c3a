"""Read rows of data from `.json`, `.jsonl` and `.csv` files."""

import codecs
import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from evolverpc_common.exact_values import InexactValueError, loads, packed
from evolverpc_common.files import no_such_file

OTHER_SEPARATORS = (";", "\t", "|")
"""Characters that other programs separate the columns of a `.csv` file with."""


class RowFileError(ValueError):
    """A file of rows cannot be used; the message names the file, and the line or row if there is one."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a `.json` file (an array of objects), a `.jsonl` file or a `.csv` file with a header.

    They are JSON, with markers for what readers of JSON change (`exact_values`). Values of a `.csv` file are strings;
    its columns are separated by commas. A byte order mark and blank lines are skipped.

    Raises:
        RowFileError: there is no such file, it has another suffix, is not UTF-8, is malformed, or holds no rows.
    """
    readers = {".json": _json_rows, ".jsonl": _jsonl_rows, ".csv": _csv_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise RowFileError(f"{path}: rows are read from .jsonl, .json or .csv")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RowFileError(no_such_file(path)) from None
    except OSError as error:
        raise RowFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    return _rows(reader, content, path)


def is_untyped(path: Path) -> bool:
    """Return whether the values of a file's rows are texts because it has no types."""
    return path.suffix.lower() == ".csv"


def line_of_row(path: Path, index: int) -> int | None:
    """Return the line, from 1, of the row `index`, from 0, of a `.jsonl` file that was read; None of another file."""
    if path.suffix.lower() != ".jsonl":
        return None
    lines = path.read_bytes().split(b"\n")
    numbers = [number for number, line in enumerate(lines, start=1) if line.strip(b"\xef\xbb\xbf \t\r")]
    return numbers[index] if index < len(numbers) else None


def parse_rows(content: bytes, name: str) -> list[dict[str, Any]]:
    """Return the rows of a JSON array of objects, or of JSON Lines. `name`: where they come from, for errors.

    Raises:
        RowFileError: as `read_rows`.
    """
    begins = content.removeprefix(codecs.BOM_UTF8).lstrip()
    return _rows(_json_rows if begins.startswith(b"[") else _jsonl_rows, content, name)


def _rows(reader: Callable[[Any, str], list[dict[str, Any]]], content: bytes, name: Path | str) -> list[dict[str, Any]]:
    try:
        rows = reader(name, content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise RowFileError(f"{name}: not UTF-8 text (byte {error.start})") from None
    if not rows:
        raise RowFileError(f"{name}: holds no rows")
    return rows


def _json_rows(path: Path | str, text: str) -> list[dict[str, Any]]:
    try:
        rows = loads(text)
    except orjson.JSONDecodeError as error:
        raise RowFileError(f"{path}: line {error.lineno}: not JSON: {error.msg}") from None
    if not isinstance(rows, list):
        raise RowFileError(f"{path}: not an array of rows")
    return [_checked_object(f"{path}: row {index}", row) for index, row in enumerate(rows)]


def _jsonl_rows(path: Path | str, text: str) -> list[dict[str, Any]]:
    rows = []
    # Split at line feeds only: str.splitlines would also cut inside a string that holds U+2028.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        try:
            row = loads(line)
        except orjson.JSONDecodeError as error:
            raise RowFileError(f"{place}: not JSON: {error.msg}") from None
        rows.append(_checked_object(place, row))
    return rows


def _csv_rows(path: Path, text: str) -> list[dict[str, Any]]:
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # 131,072 characters by default
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[dict[str, Any]] = []
    try:
        header = next(reader, [])
        if len(set(header)) != len(header):
            raise RowFileError(f"{path}: the header has repeated names: {header}")
        if len(header) == 1 and (other := next((each for each in OTHER_SEPARATORS if each in header[0]), None)):
            raise RowFileError(
                f"{path}: one column, {header[0]!r}: is {other!r} the separator? Columns are separated by commas: "
                "save the file with commas, or rename the column"
            )
        for values in reader:
            if not values or (len(values) == 1 and values[0] and not values[0].strip(" \t")):
                continue
            if len(values) != len(header):
                raise RowFileError(f"{path}: line {reader.line_num} has {len(values)} values for {len(header)} columns")
            rows.append(dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise RowFileError(f"{path}: line {reader.line_num}: {error}") from None
    return rows


def _checked_object(place: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RowFileError(f"{place} is not a JSON object")
    try:
        row: dict[str, Any] = packed(value)
    except InexactValueError as error:
        raise RowFileError(f"{place}: {error}") from None
    return row
