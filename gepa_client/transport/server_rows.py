"""The rows a server holds, listed to the end."""

from gepa_client.errors import BadResponse
from gepa_client.gepa.rows import AnyRow, HeldRow
from gepa_client.transport.rpc import RpcClient

PAGE = 1000


async def held_rows(client: RpcClient, split: str) -> list[AnyRow]:
    """Every row of a split, fetched page by page.

    Raises:
        RpcError: no such split, or the server holds none. BadResponse: it lists fewer rows than it says it has.
    """
    rows: list[AnyRow] = []
    while True:
        page = await client.list_examples(split, offset=len(rows), limit=PAGE)
        rows += [HeldRow(example.id, example.split, example.data) for example in page.examples]
        if len(rows) >= page.total:
            return rows
        if not page.examples:
            raise BadResponse(f"{split}: the server says it has {page.total} rows, but lists only {len(rows)}")
