"""What the scripted model knows: to query a table by a tool, for the orders that a user asks for."""

import re

from gepa_client.cli.model_server import Conversation, ToolCall

ASKED = re.compile(r"my (recent )?(?:(\w+) )?orders(?: from (\w+) of this year)?")
MONTHS = ("January", "February", "March", "April", "May", "June")


def answer(conversation: Conversation) -> ToolCall:
    prompt, tool = conversation.instructions, conversation.tools["Query"]
    asked = ASKED.search(conversation.last)
    assert asked is not None, "the words of the rows"
    recent, status, month = asked.groups()
    conditions = []
    if status == "cancelled" and "cancelled orders is void" in tool:
        status = "void"
    if status == "open" and "Open orders are those with the status paid" in prompt:
        status = "paid"
    if status:
        conditions.append({"column": "status", "operator": "=", "value": status})
    if recent and "since 2024-07-01" in prompt:
        conditions.append({"column": "ordered_at", "operator": ">=", "value": "2024-07-01"})
    if month:
        first = f"2024-{MONTHS.index(month) + 1:02}"
        is_one = "a month as one condition" in tool
        operator, value = ("=", first) if is_one else (">=", f"{first}-01")
        conditions.append({"column": "ordered_at", "operator": operator, "value": value})
    query = {"table_name": "orders", "columns": ["id", "status"], "conditions": conditions, "order_by": "asc"}
    return ToolCall("Query", query)
