"""Rows that the server holds, so that calls can name examples instead of sending them."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from protocol import DatasetInfo, Example, ListedExample, ListExamplesResult
from protocol.errors import UnknownExample
from rpc_server.rpc import wire

Row = dict[str, Any]
"""One example's `data`: a JSON object."""


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


def _is_position(row_id: str, size: int) -> bool:
    """Only the canonical form of a position is an id: "01" and "1" would be one row under two names."""
    return row_id.isdecimal() and str(int(row_id)) == row_id and int(row_id) < size


def _digest(rows: Sequence[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(wire.canonical(row))
        digest.update(b"\n")
    return digest.hexdigest()
