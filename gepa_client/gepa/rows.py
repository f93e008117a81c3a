"""Rows of data: of a file or of the server, GEPA's loaders of them, and those chosen to search or to compare by."""

import functools
import hashlib
import itertools
import json
import random
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from evolverpc_common.exact_values import KINDS, InexactValueError, packed, place_of_marker
from evolverpc_common.row_files import RowFileError, is_untyped, line_of_row, read_rows
from gepa_client.errors import BadResponse, RowsError
from gepa_client.journal.requests import digest_of
from gepa_client.settings.run_settings import RACE_ROWS
from gepa_client.transport.calls import Call, Reply
from gepa_client.transport.responses import example_results, validated
from protocol import Candidate, EvaluateResult, JsonValue, ListExamplesResult

if TYPE_CHECKING:
    from gepa_client.transport.rpc_client import RpcClient  # heavy


EXACT_VALUES = "exact_values"
"""The capability of servers that take markers."""


@dataclass(frozen=True)
class Row:
    """A row the optimizer holds; `data` is any JSON value, with the contract's markers, and travels with every call.

    `untyped`: as in `Example`.
    """

    id: str
    data: JsonValue
    untyped: bool = False

    @functools.cached_property
    def wire(self) -> dict[str, Any]:
        """`{id, data}`, with `untyped` if it is."""
        return {"id": self.id, "data": self.data, **({"untyped": True} if self.untyped else {})}

    @functools.cached_property
    def digest(self) -> str:
        """A digest of `wire`, in hex; worked out once, as a row is asked for over and over."""
        return digest_of(self.wire)

    @functools.cached_property
    def needs(self) -> str | None:
        """The capability that its data needs."""
        return None if place_of_marker(self.data) is None else EXACT_VALUES


@dataclass(frozen=True)
class ServerRow:
    """A row the server holds: only its name travels. `data` is what `list_examples` showed of it, else None."""

    id: str
    split: str
    data: JsonValue = None
    needs = None

    @functools.cached_property
    def wire(self) -> dict[str, Any]:
        """`{id, split}`."""
        return {"id": self.id, "split": self.split}

    @functools.cached_property
    def digest(self) -> str:
        """A digest of `wire`, in hex; worked out once, as a row is asked for over and over."""
        return digest_of(self.wire)


AnyRow = Row | ServerRow


def as_row(row: Any) -> AnyRow:
    """Return a row as it is; any other value becomes the data of a row whose id is a digest of its JSON.

    Raises:
        RowsError: it cannot be carried exactly.
    """
    if isinstance(row, Row | ServerRow):
        return row
    try:
        data = packed(row)
    except InexactValueError as error:
        raise RowsError(f"an example cannot be carried: {error}") from None
    return Row(hashlib.blake2b(orjson.dumps(data), digest_size=8).hexdigest(), data)


def check_carried(rows: Sequence[AnyRow], setting: str, file: str | None = None) -> None:
    """Check that a server without the capability `exact_values` gets the rows unchanged. `file`: that holds them.

    Raises:
        RowsError: it does not take the markers that a row needs; the message names the row and the place in it.
    """
    for index, row in enumerate(rows):
        if isinstance(row, Row) and (found := place_of_marker(row.data)) is not None:
            path, kind = found
            line = None if file is None else line_of_row(Path(file), index)
            where = f"row {index}" if line is None else f"row {index} (line {line} of {file})"
            raise RowsError(
                f"{setting}: {where}: {path} is {KINDS[kind]}, which the server may change: it lacks the "
                f"capability `{EXACT_VALUES}`. Give the value as text"
            )


def load_rows(path: Path | str) -> list[Row]:
    """Return the rows of a `.json` (an array), `.jsonl` or `.csv` file (with a header), with ids "0", "1", ...

    Raises:
        RowsError: no such file, another format, malformed, or a row that is not an object; the message names the place.
    """
    try:
        rows = read_rows(Path(path))
    except RowFileError as error:
        raise RowsError(str(error)) from error
    return numbered(rows, untyped=is_untyped(Path(path)))


def numbered(rows: Sequence[dict[str, Any]], *, untyped: bool = False) -> list[Row]:
    """Return the rows with ids "0", "1", ... in their order."""
    return [Row(str(index), data, untyped) for index, data in enumerate(rows)]


class RowLoader:
    """A GEPA data loader over rows, its ids the integers from `first_id` on.

    Give the loaders of one run disjoint ranges: GEPA's cache would mix rows of the same id up.

    `sample`: the ids of the rows that GEPA has, in this order; None for all. `fetched`: the ids of those fetched.
    """

    def __init__(self, rows: Sequence[AnyRow], first_id: int = 0, sample: Sequence[int] | None = None) -> None:
        self.rows = list(rows)
        self.first_id = first_id
        self.fetched: set[int] = set()
        self._ids = range(first_id, first_id + len(self.rows)) if sample is None else tuple(sample)

    def all_ids(self) -> Sequence[int]:
        """Every id, in the order of the rows."""
        return self._ids

    def fetch(self, ids: Sequence[int]) -> list[AnyRow]:
        """Return the rows of these ids, in their order."""
        found = [self.rows[self._position(row_id)] for row_id in ids]
        self.fetched.update(ids)
        return found

    def _position(self, row_id: int) -> int:
        position = row_id - self.first_id
        if not 0 <= position < len(self.rows):
            raise KeyError(f"no row with id {row_id}")
        return position

    def __len__(self) -> int:
        return len(self._ids)


def named(rows: Sequence[AnyRow]) -> str:
    """Return what names a call that runs these rows."""
    first = f"example {rows[0].id!r}"
    return first if len(rows) == 1 else f"the batch of {len(rows)} that begins with {first}"


def evaluation_call(
    candidate: Candidate,
    rows: Sequence[AnyRow],
    reply: Callable[[list[dict[str, Any]]], Reply[list[dict[str, Any]]]],
    *,
    traced: bool = False,
    items: Sequence[Mapping[str, Any]] | None = None,
    **members: Any,
) -> Call[list[dict[str, Any]]]:
    """Return the call that evaluates rows.

    `reply`: makes the reply of their results. `items`: as in `EvaluateParams`. `members`: further ones of `Call`.
    """
    params = {"candidate": candidate, "batch": [row.wire for row in rows], "capture_traces": traced}
    return Call(
        "evaluate",
        params if items is None else {**params, "items": items},
        lambda answer: reply(example_results(EvaluateResult, answer, len(rows))),
        about=named(rows),
        needs="batch_evaluate" if items is not None else next((row.needs for row in rows if row.needs), None),
        rows=[row.id for row in rows],
        **members,
    )


def default_sample(slots: int) -> int:
    """Return how many validation rows a search on a sample has by default.

    `slots`: how many examples the servers take at once. Fewer rows would leave slots idle and save no time.
    """
    return max(RACE_ROWS, slots)


def rows_searched(rows: int, sample: int) -> int:
    """Return on how many of `rows` validation rows a search scores candidates. `sample`: at most; 0 for all of them."""
    return min(rows, sample) or rows


def search_rows(val: RowLoader, count: int, seed: int) -> RowLoader:
    """Return a random sample of `count` validation rows; all of them if `count` is 0 or there are no more.

    A search compares candidates with each other, most of which lose: a few rows for each of many candidates find a
    better one for the same metric calls than many rows for each of a few. Decision 0022 has the figures.
    """
    ids = val.all_ids()
    if rows_searched(len(ids), count) == len(ids):
        return val
    sample = sorted(random.Random(f"{seed} sample").sample(ids, count))  # noqa: S311 - no secret
    return RowLoader(val.rows, val.first_id, sample)


def rows_left(val: RowLoader, searched: RowLoader) -> Sequence[int]:
    """Return the ids of the validation rows that the search does not use, in order."""
    used = set(searched.all_ids())
    return [row_id for row_id in val.all_ids() if row_id not in used]


PAGE = 1000


async def list_server_rows(client: "RpcClient", split: str) -> list[AnyRow]:
    """Every row of a split, fetched page by page.

    Raises:
        RpcError: no such split, or the server holds none. BadResponse: it lists fewer rows than it declares.
    """
    rows: list[AnyRow] = []
    while True:
        params = {"split": split, "offset": len(rows), "limit": PAGE}
        page = validated(ListExamplesResult, await client.call("list_examples", params))
        rows += [ServerRow(example.id, example.split, example.data) for example in page.examples]
        if len(rows) >= page.total:
            return rows
        if not page.examples:
            raise BadResponse(f"{split}: the server declares {page.total} rows, but lists only {len(rows)}")


COMPARED = 5
"""Rows that are evaluated on each server."""

SEARCHED = 1000
"""Rows among which those to compare by are looked for."""


def rows_to_compare(rows: Sequence[AnyRow], count: int = COMPARED) -> list[AnyRow]:
    """Return the rows that show most of what two implementations may treat differently, in their order.

    Each has, in its JSON, most neighbours of two kinds of characters that none chosen before has (a capital before a
    small letter, two spaces, a sign before a digit, ...), then most of them. Of rows whose data stays on the server
    these are the first. Only `SEARCHED` rows are read.
    """
    rows = rows[:SEARCHED]
    texts = [json.dumps(row.data, ensure_ascii=False) for row in rows]
    pairs = [set(itertools.pairwise(map(unicodedata.category, text))) for text in texts]
    chosen: list[int] = []
    seen: set[tuple[str, str]] = set()
    while len(chosen) < min(count, len(rows)):
        left = (at for at in range(len(rows)) if at not in chosen)
        best = max(left, key=lambda at: (len(pairs[at] - seen), len(pairs[at]), -at))
        chosen.append(best)
        seen |= pairs[best]
    return [rows[at] for at in sorted(chosen)]


def noise_warning(row: AnyRow, scores: Sequence[float]) -> str | None:
    """Return what to report of a program that is taken to be deterministic; None if its scores on the row are equal."""
    other = next((score for score in scores if score != scores[0]), None)
    if other is None:
        return None
    return (
        f"the program is taken to be deterministic, but row {row.id} scored {scores[0]:g} and then {other:g} with the "
        "same candidate: reused results hide such noise; a run with `deterministic` set to false evaluates each row "
        "anew"
    )
