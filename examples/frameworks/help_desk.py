"""What the scripted model knows: to choose one of the names that its instructions offer, by the words of a text."""

import re

from gepa_client.cli.model_server import Answer, Conversation

OFFERED = re.compile(r"\bone of: (\w+(?:, \w+)+)\.")
RULE = re.compile(r"^ *- (\w+): (.+)$", re.MULTILINE)


def choose(instructions: str, text: str) -> str:
    """Return the name that has the most words in common with a text, of several the first.

    Instructions offer the names (`one of: NAME, NAME.`). The words of a name are its parts, and those that a rule gives
    it (`- NAME: WORD, WORD`).
    """
    offered = OFFERED.search(instructions)
    assert offered is not None, "instructions that keep the names of the seed"
    words = {name: set(name.lower().split("_")) for name in offered[1].split(", ")}
    for name, more in RULE.findall(instructions):
        words[name].update(more.lower().split(", "))
    found = set(re.findall(r"\w+", text.lower()))
    return max(words, key=lambda name: len(words[name] & found))


def answer(conversation: Conversation) -> Answer:
    """Answer a program that asks for one name in each call."""
    return choose(conversation.instructions, conversation.last)
