"""What the scripted model knows: to file a ticket, by the instructions and by the description of the output."""

from help_desk import choose

from gepa_client.cli.model_server import Conversation, ToolCall


def answer(conversation: Conversation) -> ToolCall:
    intent = choose(conversation.instructions, conversation.last)
    return ToolCall("final_result", {"intent": intent, "team": choose(conversation.tools["final_result"], intent)})
