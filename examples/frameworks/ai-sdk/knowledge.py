"""What the scripted model knows: the assistant delegates each message, and adds the team to what the subagent found."""

from help_desk import choose

from gepa_client.cli.model_server import Answer, Conversation, ToolCall


def answer(conversation: Conversation) -> Answer:
    if "research" not in conversation.tools:
        return choose(conversation.instructions, conversation.last)
    if conversation.messages[-1][0] == "user":
        return ToolCall("research", {"task": conversation.last})
    return f"{conversation.last}, {choose(conversation.instructions, conversation.last)}"
