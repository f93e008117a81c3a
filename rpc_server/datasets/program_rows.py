"""Rows that a program holds itself, fetched once at its start, so that any of its processes can be sent them."""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from protocol import ListExamplesResult
from protocol.errors import ProgramFailed
from rpc_server.datasets.datasets import Row
from rpc_server.program.program import Program

_PAGE = 1000


@dataclass(frozen=True)
class ProgramRows:
    """The rows of each split that the program shares, and the splits of which it tells no more than the ids."""

    shared: dict[str, list[Row]]
    kept: tuple[str, ...]


async def rows_of(program: Program) -> ProgramRows:
    """All that the program holds, each split in the program's order.

    Raises:
        ProgramFailed: it lists other rows than it said, or what is no row; with `stage` `datasets`.
    """
    found = {split: await _rows(program, split, size) for split, size in program.splits.items()}
    return ProgramRows(
        shared={split: rows for split, rows in found.items() if rows is not None},
        kept=tuple(split for split, rows in found.items() if rows is None),
    )


async def _rows(program: Program, split: str, size: int) -> list[Row] | None:
    """The rows of one split; None where they come without their data."""
    rows: list[Row] = []
    while len(rows) < size:
        answer = await program.call("list_examples", {"split": split, "offset": len(rows), "limit": _PAGE})
        page = _examples(split, answer)
        if not page:
            raise _failed(split, f"has {len(rows)} rows where {size} were said")
        if not all("data" in example for example in page):
            return None
        rows += [_row(split, example["data"]) for example in page]
    return rows


def _examples(split: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        page = ListExamplesResult.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _failed(split, f"is listed wrongly: {first['msg']}") from None
    return [example.model_dump(exclude_unset=True) for example in page.examples]


def _row(split: str, data: Any) -> Row:
    if not isinstance(data, dict):
        raise _failed(split, "has a row that is not a JSON object")
    return data


def _failed(split: str, what: str) -> ProgramFailed:
    return ProgramFailed(f"the program's split {split!r} {what}", stage="datasets")
