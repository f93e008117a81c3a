"""A server on loopback that answers texts by a function, as a model: parts of OpenAI's and Anthropic's APIs."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_BYTES = 10 * 2**20
"""Of a request."""

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


@dataclass(frozen=True)
class Conversation:
    """What a request asks. `instructions`: the texts of the system. `messages`: the text of each other message."""

    instructions: str
    messages: tuple[str, ...]

    @property
    def last(self) -> str:
        """The text of the last message."""
        return self.messages[-1]


class ModelServer(ThreadingHTTPServer):
    """Answers each conversation by `answer`, on 127.0.0.1 and `port`, or a free port for 0.

    Raises:
        OSError: the port cannot be listened on.
    """

    def __init__(self, answer: Callable[[Conversation], str], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _ModelHandler)
        self.answer = answer
        url = f"http://127.0.0.1:{self.server_port}"
        self.variables = {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_BASE": f"{url}/v1",
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
        }
        """The environment variables by which clients find it."""


class _ModelHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ModelServer

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            return self._refuse(413, f"a request has a Content-Length of at most {MOST_BYTES} bytes")
        body = self.rfile.read(int(length))
        path = self.path.partition("?")[0]
        if path not in (CHAT, MESSAGES):
            return self._refuse(404, f"a scripted model answers POST {CHAT}, POST {MESSAGES}")
        try:
            request = json.loads(body)
            if request.get("stream"):
                return self._refuse(400, "a scripted model does not stream: ask without `stream`")
            model, conversation = str(request["model"]), _conversation(request)
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._refuse(400, "the body must be JSON with `model` and `messages` of texts")
        asked = _tokens(conversation.instructions, *conversation.messages)
        answer = self.server.answer(conversation)
        written = (_chat if path == CHAT else _message)(answer, asked, _tokens(answer))
        return self._send(200, {"id": f"answer_{asked}", "model": model, **written})

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


def _conversation(request: Any) -> Conversation:
    """Return what a request asks, in either API; `ValueError` if it asks nothing."""
    every = [(message["role"], _text(message["content"])) for message in request["messages"]]
    system = [_text(request.get("system") or ""), *(text for role, text in every if role in ("system", "developer"))]
    messages = tuple(text for role, text in every if role not in ("system", "developer"))
    if not messages:
        raise ValueError("no message")
    return Conversation("\n".join(filter(None, system)), messages)


def _text(content: Any) -> str:
    """Return the text of a message, which is a string or a list of blocks."""
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


def _tokens(*texts: str) -> int:
    """Return about how many tokens texts have: one for four characters."""
    return sum(map(len, texts)) // 4 + 1


def _chat(answer: str, read: int, written: int) -> dict[str, Any]:
    return {
        "object": "chat.completion",
        "created": 0,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _message(answer: str, read: int, written: int) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": answer}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": written},
    }
