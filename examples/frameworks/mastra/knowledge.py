"""What the scripted model knows: to file a message once, by the instructions and by the tool's description."""

from help_desk import choose

from gepa_client.cli.model_server import Answer, Conversation, ToolCall


def answer(conversation: Conversation) -> Answer:
    if conversation.messages[-1][0] == "tool":
        return "The message is filed."
    intent = choose(conversation.instructions, conversation.last)
    return ToolCall("fileTool", {"intent": intent, "team": choose(conversation.tools["fileTool"], intent)})
