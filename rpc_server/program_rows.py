"""Rows that a program holds itself, fetched once at its start, so that any of its processes can be sent them."""

from typing import Any

from pydantic import ValidationError

from protocol import ListExamplesResult
from protocol.errors import ProgramFailed
from rpc_server.datasets import Row
from rpc_server.program import Program

_PAGE = 1000


async def rows_of(program: Program) -> dict[str, list[Row]]:
    """Split -> rows, in the program's order.

    Raises:
        ProgramFailed: it lists other rows than it said, or rows without their data; with `stage` `datasets`.
    """
    return {split: await _rows(program, split, size) for split, size in program.splits.items()}


async def _rows(program: Program, split: str, size: int) -> list[Row]:
    rows: list[Row] = []
    while len(rows) < size:
        answer = await program.call("list_examples", {"split": split, "offset": len(rows), "limit": _PAGE})
        page = [_row(split, example) for example in _examples(split, answer)]
        if not page:
            raise _failed(split, f"has {len(rows)} rows where {size} were said")
        rows += page
    return rows


def _examples(split: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        page = ListExamplesResult.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _failed(split, f"is listed wrongly: {first['msg']}") from None
    return [example.model_dump(exclude_unset=True) for example in page.examples]


def _row(split: str, example: dict[str, Any]) -> Row:
    row = example.get("data")
    if not isinstance(row, dict):
        raise _failed(split, "is listed without its rows; let the program share them, or give them as `datasets`")
    return row


def _failed(split: str, what: str) -> ProgramFailed:
    return ProgramFailed(f"the program's split {split!r} {what}", stage="datasets")
