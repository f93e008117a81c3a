"""What the scripted model knows: to ask both experts as their supervisor, and to name one thing as an expert."""

from help_desk import OFFERED, choose

from gepa_client.cli.model_server import Answer, Conversation, ToolCall

HANDOVERS = ("Successfully transferred", "Transferring back")


def answer(conversation: Conversation) -> Answer:
    message, *named = (text for _, text in conversation.messages if text and not text.startswith(HANDOVERS))
    if OFFERED.search(conversation.instructions):
        return choose(conversation.instructions, named[-1] if named else message)
    if len(named) < 2:
        return ToolCall(("transfer_to_intent_expert", "transfer_to_team_expert")[len(named)], {})
    return " ".join(named)
