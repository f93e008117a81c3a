"""What the scripted model knows: to write a query of two conditions, by the prompt and by the tool's description."""

from help_desk import choose

from gepa_client.cli.model_server import Conversation, ToolCall


def answer(conversation: Conversation) -> ToolCall:
    intent = choose(conversation.instructions, conversation.last)
    values = {"intent": intent, "team": choose(conversation.tools["Query"], intent)}
    conditions = [{"column": column, "operator": "=", "value": value} for column, value in values.items()]
    query = {"table_name": "customers", "columns": ["id"], "conditions": conditions, "order_by": "asc"}
    return ToolCall("Query", query)
