"""What the scripted model knows: to store one memory of a message, by the prompt and by the tool's description."""

from help_desk import choose

from gepa_client.cli.model_server import Answer, Conversation, ToolCall


def answer(conversation: Conversation) -> Answer:
    if conversation.messages[-1][0] == "tool":
        return "Thank you for the message!"
    intent = choose(conversation.instructions, conversation.last)
    team = choose(conversation.tools["upsertMemory"], intent)
    return ToolCall("upsertMemory", {"content": intent, "context": team})
