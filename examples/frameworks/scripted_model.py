"""A scripted stand-in for a language model, in this process: for the program and for reflection.

As the program's model it answers by `answer(conversation)` of an example's `knowledge.py` or else of `help_desk.py`,
which knows a rule only if the instructions of that call hold it. As the reflection model it answers the call of
`evolverpc check`, reads the records that it is sent, and adds to the instructions each rule that their feedback names
(`Rule: ...`).
"""

import contextlib
import re
import runpy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from gepa_client.check.preflight import PROMPT
from gepa_client.cli.model_server import Answer, Conversation, ModelServer

REFLECTION = re.compile(r"with the following instructions[^\n]*:\n```\n(.*?)\n```\n\nThe following are", re.DOTALL)
FEEDBACK = re.compile(r"^## Feedback\n(.*?)(?=^# Example \d+$|^```$|\Z)", re.MULTILINE | re.DOTALL)
RULE = re.compile(r"Rule: (.+)")


@contextlib.contextmanager
def scripted_model(knowledge: Path) -> Iterator[dict[str, str]]:
    """Serve the model while the block runs; yields the environment variables by which clients find it."""
    program_answer: Callable[[Conversation], Answer] = runpy.run_path(str(knowledge))["answer"]

    def answer(conversation: Conversation) -> Answer:
        asked = REFLECTION.search(conversation.last)
        if asked:
            return f"```\n{better_instructions(asked[1], conversation.last)}\n```"
        return "ready" if conversation.last == PROMPT else program_answer(conversation)

    with ModelServer(answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.variables
        finally:
            server.shutdown()
            thread.join()


def better_instructions(instructions: str, request: str) -> str:
    """Return the instructions with the rules that the feedback of a request's records names and they do not hold."""
    rules = [rule for feedback in FEEDBACK.findall(request) for rule in RULE.findall(feedback)]
    new = [f"- {rule}" for rule in dict.fromkeys(rules) if rule not in instructions]
    return "\n".join([instructions, *new])
