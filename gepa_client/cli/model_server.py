"""A server on loopback that answers by a function, as a model: parts of OpenAI's, Anthropic's and Gemini's APIs."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_BYTES = 10 * 2**20
"""Of a request."""


@dataclass(frozen=True)
class Conversation:
    """What a request asks. `messages`: (role, text) of each that is not the system's; tools answer as `tool`.

    `instructions`: the texts of the system. `tools`: name -> description.
    """

    instructions: str
    messages: tuple[tuple[str, str], ...]
    tools: Mapping[str, str]

    @property
    def last(self) -> str:
        """The text of the last message."""
        return self.messages[-1][1]


@dataclass(frozen=True)
class ToolCall:
    """An answer that calls a tool."""

    name: str
    arguments: Mapping[str, Any]


Answer = str | ToolCall


class ModelServer(ThreadingHTTPServer):
    """Answers each conversation by `answer`, on 127.0.0.1 and `port`, or a free port for 0.

    Raises:
        OSError: the port cannot be listened on.
    """

    def __init__(self, answer: Callable[[Conversation], Answer], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _ModelHandler)
        self.answer = answer
        url = f"http://127.0.0.1:{self.server_port}"
        self.variables = {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_BASE": f"{url}/v1",
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_API_KEY": "none",
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
        in_path = _MODEL_IN_PATH.search(path)
        interface = _INTERFACES.get(_MODEL_IN_PATH.sub("MODEL", path))
        if interface is None:
            return self._refuse(404, f"a scripted model answers {', '.join(f'POST {path}' for path in _INTERFACES)}")
        read, write = interface
        try:
            request = json.loads(body)
            if request.get("stream"):
                return self._refuse(400, "a scripted model does not stream: ask without `stream`")
            model, conversation = in_path[0] if in_path else str(request["model"]), read(request)
            if not conversation.messages:
                raise ValueError("no message")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return self._refuse(
                400, "the body must be JSON with `model` and `messages` or `input`, or `contents`, of texts"
            )
        answer = self.server.answer(conversation)
        asked = _tokens(conversation.instructions, *(text for _, text in conversation.messages))
        written = _tokens(answer if isinstance(answer, str) else _arguments(answer))
        return self._send(
            200, {"id": f"answer_{asked}", "model": model, **write(answer, f"call_{asked}", asked, written)}
        )

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
    """Return the text of a message, which is a string or a list of blocks, or null beside tool calls."""
    return content or "" if isinstance(content, str | None) else "\n".join(block["text"] for block in content)


def _conversation(messages: Iterable[tuple[str, str]], tools: Iterable[Mapping[str, Any]]) -> Conversation:
    every = list(messages)
    return Conversation(
        "\n".join(text for role, text in every if role in ("system", "developer")),
        tuple((role, text) for role, text in every if role not in ("system", "developer")),
        {tool["name"]: tool.get("description") or "" for tool in tools},
    )


def _tokens(*texts: str) -> int:
    """Return about how many tokens texts have: one for four characters."""
    return sum(map(len, texts)) // 4 + 1


def _arguments(call: ToolCall) -> str:
    return json.dumps(dict(call.arguments))


def _read_chat(request: Any) -> Conversation:
    messages = [(message["role"], _text(message.get("content"))) for message in request["messages"]]
    tools = [tool["function"] for tool in request.get("tools") or []]
    return _conversation(messages, tools)


def _write_chat(answer: Answer, call_id: str, read: int, written: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if isinstance(answer, ToolCall):
        function = {"name": answer.name, "arguments": _arguments(answer)}
        message |= {"content": None, "tool_calls": [{"id": call_id, "type": "function", "function": function}]}
    finish_reason = "stop" if isinstance(answer, str) else "tool_calls"
    return {
        "object": "chat.completion",
        "created": 0,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _read_response(request: Any) -> Conversation:
    given = request["input"]
    messages = [("system", _text(request.get("instructions")))]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        if item.get("type") == "function_call_output":
            messages.append(("tool", _text(item["output"])))
        elif "role" in item:
            messages.append((item["role"], _text(item["content"])))
    return _conversation(messages, request.get("tools") or [])


def _write_response(answer: Answer, call_id: str, read: int, written: int) -> dict[str, Any]:
    item: dict[str, Any] = {"id": f"item_{read}", "status": "completed"}
    if isinstance(answer, str):
        content = [{"type": "output_text", "text": answer, "annotations": []}]
        item |= {"type": "message", "role": "assistant", "content": content}
    else:
        item |= {"type": "function_call", "call_id": call_id, "name": answer.name, "arguments": _arguments(answer)}
    return {
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "output": [item],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        },
    }


def _read_message(request: Any) -> Conversation:
    messages = [(message["role"], _text(message["content"])) for message in request["messages"]]
    return _conversation([("system", _text(request.get("system"))), *messages], request.get("tools") or [])


def _write_message(answer: Answer, call_id: str, read: int, written: int) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": answer}
    if isinstance(answer, ToolCall):
        block = {"type": "tool_use", "id": call_id, "name": answer.name, "input": dict(answer.arguments)}
    return {
        "type": "message",
        "role": "assistant",
        "content": [block],
        "stop_reason": "end_turn" if isinstance(answer, str) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": written},
    }


def _read_contents(request: Any) -> Conversation:
    messages = [("system", _parts(request.get("systemInstruction") or {"parts": []}))]
    for content in request["contents"]:
        returned = [part["functionResponse"]["response"] for part in content["parts"] if "functionResponse" in part]
        messages += [("tool", json.dumps(value)) for value in returned]
        if not returned:
            messages.append((content["role"], _parts(content)))
    tools = [one for tool in request.get("tools") or [] for one in tool["functionDeclarations"]]
    return _conversation(messages, tools)


def _parts(content: Any) -> str:
    return "\n".join(part["text"] for part in content["parts"] if "functionCall" not in part)


def _write_candidate(answer: Answer, call_id: str, read: int, written: int) -> dict[str, Any]:
    part: dict[str, Any] = {"text": answer}
    if isinstance(answer, ToolCall):
        part = {"functionCall": {"id": call_id, "name": answer.name, "args": dict(answer.arguments)}}
    usage = {"promptTokenCount": read, "candidatesTokenCount": written, "totalTokenCount": read + written}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    return {"candidates": [candidate], "usageMetadata": usage}


_MODEL_IN_PATH = re.compile(r"(?<=/models/)[^/:]+")
_INTERFACES: dict[str, tuple[Callable[[Any], Conversation], Callable[[Answer, str, int, int], dict[str, Any]]]] = {
    "/v1/chat/completions": (_read_chat, _write_chat),
    "/v1/responses": (_read_response, _write_response),
    "/v1/messages": (_read_message, _write_message),
    "/v1/models/MODEL:generateContent": (_read_contents, _write_candidate),
    "/v1beta/models/MODEL:generateContent": (_read_contents, _write_candidate),
}
