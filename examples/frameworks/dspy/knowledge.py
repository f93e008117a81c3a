"""What the scripted model knows: to name one thing in the format of DSPy's chat adapter."""

import re

from help_desk import choose

from gepa_client.cli.model_server import Conversation


def answer(conversation: Conversation) -> str:
    [text] = re.findall(r"## \]\]\n(.*?)\n\nRespond with", conversation.last, re.DOTALL)
    field = "team" if "`team`" in conversation.instructions else "category"
    return f"[[ ## {field} ## ]]\n{choose(conversation.instructions, text)}\n\n[[ ## completed ## ]]"
