"""A model provider on loopback, for programs that ask one."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import pytest

from tests.support.http_servers import run_in_threadpool

OPENAI = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 40}}
ANTHROPIC = {
    "input_tokens": 50,
    "output_tokens": 20,
    "cache_read_input_tokens": 40,
    "cache_creation_input_tokens": 10,
}
ANSWER = "[[ ## answer ## ]]\nso\n\n[[ ## completed ## ]]"
"""In the format that DSPy asks for."""

COUNTED = {"calls": 1, "input_tokens": 100, "output_tokens": 20, "cached_input_tokens": 40}


class Provider(BaseHTTPRequestHandler):
    """Answers as OpenAI or Anthropic does, with the same tokens each time; asks for a tool if it is offered one."""

    def do_POST(self) -> None:  # the base class names it
        asked = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "/refused/" in self.path:
            self._answer(429, {"error": {"message": "slow down"}})
        elif self.path.endswith("/messages"):
            text = {"type": "text", "text": ANSWER}
            head = {
                "id": "1",
                "type": "message",
                "role": "assistant",
                "model": asked["model"],
                "stop_reason": "end_turn",
            }
            self._answer(200, {**head, "content": [text], "usage": ANTHROPIC})
        else:
            message = {"role": "assistant", "content": ANSWER}
            if asked.get("tools") and asked["messages"][-1]["role"] != "tool":
                function = {"name": asked["tools"][0]["function"]["name"], "arguments": '{"city": "Rome"}'}
                message = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            head = {"id": "1", "object": "chat.completion", "created": 1, "model": f"{asked['model']}-2024-07-18"}
            usage = OPENAI | {"total_tokens": 120}
            if asked.get("stream"):
                chunk = {**head, "object": "chat.completion.chunk"}
                delta = {"index": 0, "delta": message, "finish_reason": "stop"}
                counted = [{**chunk, "choices": [], "usage": usage}] * ("stream_options" in asked)
                self._stream({**chunk, "choices": [delta]}, *counted)
            else:
                self._answer(200, {**head, "choices": [choice], "usage": usage})

    def do_GET(self) -> None:  # the base class names it
        self._answer(200, {"data": []})

    def _stream(self, *chunks: Any) -> None:
        self._send(200, "text/event-stream", b"".join(b"data: %s\n\n" % orjson.dumps(each) for each in chunks))

    def _answer(self, status: int, value: Any) -> None:
        self._send(status, "application/json", orjson.dumps(value))

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def provider() -> Iterator[str]:
    with run_in_threadpool(ThreadingHTTPServer(("127.0.0.1", 0), Provider)) as server:
        yield f"http://127.0.0.1:{server.server_port}/v1"
