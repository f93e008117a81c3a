"""`gepa-client demo-model`: a scripted stand-in for a language model, for `examples/quickstart` without a key.

It answers a message about a topic with the team that the prompt names for this topic, in a line such as
`- dock: deliveries, returns`, else with a team as other companies have it. If it is asked for better instructions, it
adds the teams that the feedback of the records expected. It speaks the parts of OpenAI's and Anthropic's interfaces
that this needs.
"""

import itertools
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import typer

from gepa_client.cli.arguments import STOPPED, AsJson
from gepa_client.cli.views.console import refuse

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

HEADING = "The teams and what they answer:"
TEAM = re.compile(r"^- (\S+): (.+)$", re.MULTILINE)
REFLECTION = re.compile(r"the following instructions.*?```\n(.*?)\n```\n", re.DOTALL)
RECORD = re.compile(r"### text\n(.*?)\n\n.*?## Feedback\nexpected (\S+),", re.DOTALL)
NEXT_RECORD = re.compile(r"^# Example \d+$", re.MULTILINE)
MOST_BYTES = 10 * 2**20
"""Of a request."""


def demo_model(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 for a free one.")] = 8100,
    as_json: AsJson = False,
) -> None:
    """Serve a scripted stand-in for a language model, so that examples/quickstart runs without a key.

    It is no model: it knows the topics of that example's rows and nothing else.
    """
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), ModelHandler)
    except OSError as error:
        refuse(f"cannot listen on 127.0.0.1:{port} ({error.strerror}): give another --port, or 0 for a free one")
    url = f"http://127.0.0.1:{server.server_port}"
    variables = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
    }
    if as_json:
        print(json.dumps(variables), flush=True)
    else:
        print("A scripted stand-in, no language model: it knows the rows of examples/quickstart")
        print("and costs nothing. A run prints what the model that it names would have cost.")
        print("Paste this in each terminal:\n")
        for name, value in variables.items():
            print(f"export {name}={value}")
        print("\nCtrl-C ends it.", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        raise typer.Exit(STOPPED) from None
    finally:
        server.server_close()


def answer(prompt: str, message: str) -> str:
    """Return the answer to the last message of a conversation; `prompt`: the text of those before it."""
    asked = REFLECTION.search(message)
    return f"```\n{better_instructions(asked[1], message)}\n```" if asked else team(prompt, message)


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
    """Return the instructions with the teams that the records of GEPA's request for reflection expected."""
    teams: dict[str, list[str]] = {name: topics.split(", ") for name, topics in TEAM.findall(instructions)}
    for message, expected in itertools.chain(*map(RECORD.findall, NEXT_RECORD.split(request))):
        topic = topic_of(message)
        if topic and topic not in teams.setdefault(expected, []):
            teams[expected].append(topic)
    lines = [f"- {name}: {', '.join(topics)}" for name, topics in teams.items()]
    first = instructions.partition(f"\n\n{HEADING}")[0]
    return "\n".join([first, "", HEADING, *lines]) if lines else instructions


class ModelHandler(BaseHTTPRequestHandler):
    """`POST /v1/chat/completions` as OpenAI answers it, `POST /v1/messages` as Anthropic does."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one conversation."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            return self._refuse(413, f"a request has a Content-Length of at most {MOST_BYTES} bytes")
        body = self.rfile.read(int(length))
        write = {"/v1/chat/completions": _as_openai, "/v1/messages": _as_anthropic}.get(self.path.partition("?")[0])
        if write is None:
            return self._refuse(404, "demo-model answers POST /v1/chat/completions and POST /v1/messages")
        try:
            request = json.loads(body)
            if request.get("stream"):
                return self._refuse(400, "demo-model does not stream: ask without `stream`")
            texts = [_text(message["content"]) for message in request["messages"]]
            prompt = "\n".join([_text(request.get("system", "")), *texts[:-1]])
            self._send(200, write(str(request["model"]), prompt, texts[-1], answer(prompt, texts[-1])))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            self._refuse(400, "the body must be JSON with `model` and `messages`, each with a `content` of text")
        return None

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})

    def _send(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _text(content: Any) -> str:
    """Return the text of a message, which is a string or a list of blocks."""
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


def _tokens(*texts: str) -> int:
    """Return about how many tokens texts have: one for four characters."""
    return sum(map(len, texts)) // 4 + 1


def _as_openai(model: str, prompt: str, message: str, text: str) -> dict[str, Any]:
    read, written = _tokens(prompt, message), _tokens(text)
    return {
        "id": "demo",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _as_anthropic(model: str, prompt: str, message: str, text: str) -> dict[str, Any]:
    return {
        "id": "demo",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": _tokens(prompt, message), "output_tokens": _tokens(text)},
    }
