"""Clients by failures: where an example is judged wrongly, and which clients the page of frameworks does not have."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.rpc_server.scripted_host import EXPECTED, scripted_host

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"


async def wrong_cells(
    running: Any, failures: Mapping[str, Iterable[str]], *, swallow: Iterable[bool] = (False,), named: bool = False
) -> Any:
    """Each row whose status is wrong, and its result; `failures` by client, `swallow`: whether the program hides them.

    A failure that a client brings about itself has its own name in place of a URL. `named`: the error of a rejection
    must have its status.
    """
    async with scripted_host() as urls:
        rows = [
            {"client": client, "failure": failure, "url": urls.get(failure, failure), "swallow": hidden}
            for client, named in failures.items()
            for failure in named
            for hidden in swallow
        ]
        results = await running.evaluate(*rows, seconds=600.0)
    cells = zip(rows, results, strict=True)
    return [
        (row, str(result)[:400])
        for row, result in cells
        if result["status"] != EXPECTED.get(row["failure"], "infra_error")
        or (named and result["status"] == "program_error" and f"[HTTP {row['failure']}" not in str(result["error"]))
    ]


def missing_rows(versions: Mapping[str, str]) -> list[str]:
    """The beginnings of rows, of clients with their versions, that the page does not have."""
    page = PAGE.read_text()
    return [row for client, version in versions.items() if (row := f"| {client} | {version} |") not in page]
