"""Rows that the server or its program holds, so that calls can name examples instead of sending them."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from evolverpc_common.exact_values import KINDS, MARK, place_of_marker
from evolverpc_common.row_files import RowFileError, is_untyped
from protocol import DatasetInfo, Example, JsonValue, ListedExample, ListExamplesResult
from protocol.errors import ProgramFailed, UnknownExample
from rpc_server import wire
from rpc_server.program.program import Program
from rpc_server.wire import invalid
from rpc_server.worker.json_values import MalformedMarkerError, unpacked

_LOOKS_MARKED = MARK.encode()

Row = dict[str, Any]
"""One example's `data`: a JSON object."""


class Datasets:
    """The splits a server holds. A row's id is its position in its file, from `"0"`.

    `untyped`: the splits of files without types. `objects`: the splits whose rows are objects that the program has, and
    gets as the list of their split and position; `splits` has them as they are shown.
    """

    def __init__(
        self,
        splits: Mapping[str, Sequence[Row]] | None = None,
        *,
        share_rows: bool = True,
        untyped: Collection[str] = (),
        objects: Collection[str] = (),
    ) -> None:
        self._splits = dict(splits or {})
        self._share_rows = share_rows
        self._untyped = untyped
        self._objects = objects
        self.infos = {split: DatasetInfo(size=len(rows), digest=_digest(rows)) for split, rows in self._splits.items()}

    def __bool__(self) -> bool:
        return bool(self._splits)

    def list(self, split: str, *, offset: int, limit: int) -> ListExamplesResult:
        """Return one page, with data if rows are shared. Raises `UnknownExample` for an unknown split."""
        rows = self._splits.get(split)
        if rows is None:
            raise UnknownExample("unknown split", split=split, ids=[])
        page = range(offset, min(offset + limit, len(rows)))
        data = ({"data": rows[position]} if self._share_rows else {} for position in page)
        examples = [ListedExample(id=str(at), split=split, **shown) for at, shown in zip(page, data, strict=True)]
        return ListExamplesResult(examples=examples, total=len(rows))

    def hidden(self, batch: Sequence[Example]) -> Sequence[JsonValue]:
        """Return the data of each example whose row is not shown by `list`; None for the others. All rows are known."""
        return [
            None if self._share_rows or "split" not in each.model_fields_set else self._splits[each.split][int(each.id)]
            for each in batch
        ]

    def filled(self, batch: Sequence[Example]) -> Sequence[Example]:
        """Return the examples with rows in place of `{id, split}`.

        Raises:
            UnknownExample: with a `split` and the unknown `ids`. InvalidParams: the data of one has a malformed marker.
        """
        for position, example in enumerate(batch):
            if _LOOKS_MARKED not in wire.write(example.data):
                continue
            try:
                unpacked(example.data)
            except MalformedMarkerError as error:
                raise invalid(f"batch[{position}].data", str(error)) from None
        named = [example for example in batch if "split" in example.model_fields_set]
        if not named:
            return batch
        self._check_known(named)
        return [self._filled(example) if "split" in example.model_fields_set else example for example in batch]

    def _filled(self, named: Example) -> Example:
        split, position = named.split, int(named.id)
        if split in self._objects:
            return Example(id=named.id, data=[split, position])
        data = self._splits[split][position]
        if split in self._untyped:
            return Example(id=named.id, data=data, untyped=True)
        return Example(id=named.id, data=data)

    def _check_known(self, named: Sequence[Example]) -> None:
        for split in dict.fromkeys(example.split for example in named):
            size = len(self._splits.get(split, ()))
            unknown = [example.id for example in named if example.split == split and not _is_position(example.id, size)]
            if unknown:
                raise UnknownExample(split=split, ids=unknown)


def untyped_splits(files: Mapping[str, Path]) -> set[str]:
    """Return the splits whose files have no types."""
    return {split for split, path in files.items() if is_untyped(path)}


def _is_position(row_id: str, size: int) -> bool:
    """Report whether an id is a position in its canonical form: "01" and "1" must not be one row."""
    return row_id.isdecimal() and str(int(row_id)) == row_id and int(row_id) < size


def _digest(rows: Sequence[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(wire.canonical(row))
        digest.update(b"\n")
    return digest.hexdigest()


def check_carried(splits: Mapping[str, Sequence[Row]], program: Program) -> None:
    """Check that the program gets the rows of files as they are.

    Raises:
        RowFileError: it lacks the capability `exact_values`, which a row needs.
    """
    for split, rows in splits.items() if "exact_values" not in program.capabilities else ():
        for index, row in enumerate(rows):
            if (found := place_of_marker(row)) is not None:
                raise RowFileError(
                    f"datasets.{split}: row {index}: {found[0]} is {KINDS[found[1]]}, which the program may "
                    "change: it lacks the capability `exact_values`. Give the value as text"
                )


_PAGE = 1000


async def program_rows(program: Program) -> dict[str, list[Row] | None]:
    """Return the rows of each split that the program holds, for all of its processes; None if it lists ids only.

    Raises:
        ProgramFailed: it lists other rows than announced, with `stage` `datasets`; or its answer is none.
    """
    return {split: await _rows(program, split, size) for split, size in program.splits.items()}


async def _rows(program: Program, split: str, size: int) -> list[Row] | None:
    """Return the rows of one split; None if they come without data."""
    rows: list[Row] = []
    while len(rows) < size:
        answer = await program.call("list_examples", {"split": split, "offset": len(rows), "limit": _PAGE})
        page = answer["examples"]
        if not page:
            raise _failed(split, f"has {len(rows)} rows instead of the {size} announced")
        if not all("data" in example for example in page):
            return None
        rows += [_row(split, example["data"]) for example in page]
    return rows


def _row(split: str, data: Any) -> Row:
    if not isinstance(data, dict):
        raise _failed(split, "has a row that is not a JSON object")
    return data


def _failed(split: str, what: str) -> ProgramFailed:
    return ProgramFailed(f"the program's split {split!r} {what}", stage="datasets")
