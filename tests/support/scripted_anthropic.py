"""A model that follows a script: speaks the Anthropic Messages API on loopback to the real coding agent.

In a test:

    async with ScriptedModel([Script("make it louder", [[use("Bash", command="ls")], ["Done."]])]) as model:
        environment = {**os.environ, **model.environment()}

`with served(path) as environment:` serves the scripts in a JSON file,
`[{"when": "make it louder", "turns": [[{"tool": "Bash", "input": {"command": "ls"}}], ["Done."]]}]`.
"""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from tests.support.loops import in_a_thread
from tests.support.web_hosts import web_host

Block = Mapping[str, Any]
"""A content block of the Messages API."""

Turn = Sequence[Block | str]
"""One answer of the model; a plain string is a text block."""


def use(tool: str, **arguments: Any) -> Block:
    """A use of a tool. `{folder}` in an argument stands for the agent's working directory."""
    return {"type": "tool_use", "name": tool, "input": arguments}


class Silence:
    """Instead of a turn: nothing is answered."""


@dataclass(frozen=True)
class Asked:
    """One request for a turn, as the agent sent it."""

    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        """The text of the first user message."""
        return _texts(self.body["messages"][0]["content"])

    @property
    def tools(self) -> list[str]:
        """The names of the tools the model may use."""
        return [tool["name"] for tool in self.body.get("tools", [])]

    @property
    def turn(self) -> int:
        """How often the model has spoken in this conversation."""
        return sum(message["role"] == "assistant" for message in self.body["messages"])

    @property
    def tool_results(self) -> list[str]:
        """What the tools gave so far, in order; an error begins with `error: `."""
        results = []
        for message in self.body["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block["type"] == "tool_result":
                    prefix = "error: " if block.get("is_error") else ""
                    results.append(prefix + _texts(block.get("content", "")))
        return results

    @property
    def folder(self) -> str:
        """The agent's working directory, from its system prompt."""
        spoken = (self.body.get("system", ""), *(message["content"] for message in self.body["messages"]))
        everything = "\n".join(map(_texts, spoken))
        found = re.search(r"[Ww]orking directory: (/.+)", everything)
        return found.group(1).strip() if found else "."


Answer = Turn | Silence
Turns = Sequence[Answer] | Callable[[Asked], Answer]
"""One after the other, or decided when asked. After the last one, each further request is refused."""


@dataclass(frozen=True)
class Script:
    """What the model does in conversations whose first message contains `when`."""

    when: str
    turns: Turns
    input_tokens: int = 100
    """Counted for each turn, ten of them read from the cache, as is `output_tokens`."""
    output_tokens: int = 10


class ScriptedModel:
    """Serves scripts; the first one that fits a conversation is followed. Used by `async with`."""

    def __init__(self, scripts: Sequence[Script] = ()) -> None:
        self.scripts = list(scripts)
        self.asked: list[Asked] = []
        """Every request for a turn, oldest first."""
        self.others: list[str] = []
        """Paths that were asked for and are not served."""
        self.url = ""
        self._numbers = itertools.count(1)

    def environment(self) -> dict[str, str]:
        """Variables that lead the agent here."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "key-of-the-tests", "NO_PROXY": "127.0.0.1"}

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_route("*", "/{path:.*}", self._not_served)
        self._host = web_host(app)
        self.url = f"http://{await self._host.__aenter__()}"
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await self._host.__aexit__(*ended)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(await request.json())
        self.asked.append(asked)
        script = next((script for script in self.scripts if script.when in asked.prompt), None)
        if script is None:
            return _error(400, f"no script for: {asked.prompt[:200]}")
        if callable(script.turns):
            answer = script.turns(asked)
        elif asked.turn < len(script.turns):
            answer = script.turns[asked.turn]
        else:
            return _error(400, f"the script for {script.when!r} has {len(script.turns)} turns")
        if isinstance(answer, Silence):
            await asyncio.Event().wait()  # until the agent hangs up
            return web.Response()
        message = self._message(script, asked, answer)
        if not asked.body.get("stream"):
            return web.json_response(message)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in _events(message):
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await response.write_eof()
        return response

    def _message(self, script: Script, asked: Asked, turn: Turn) -> dict[str, Any]:
        blocks = []
        for block in turn:
            whole = {"type": "text", "text": block} if isinstance(block, str) else dict(block)
            if whole["type"] == "tool_use":
                whole["id"] = f"toolu_{next(self._numbers):08}"
                whole["input"] = json.loads(json.dumps(whole["input"]).replace("{folder}", asked.folder))
            blocks.append(whole)
        others = {"cache_read_input_tokens": 10, "output_tokens": script.output_tokens}
        return {
            "id": f"msg_{next(self._numbers):08}",
            "type": "message",
            "role": "assistant",
            "model": asked.body["model"],
            "content": blocks,
            "stop_reason": "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": script.input_tokens - 10, **others},
        }

    async def _count_tokens(self, request: web.Request) -> web.Response:
        return web.json_response({"input_tokens": len(await request.read()) // 4})

    async def _not_served(self, request: web.Request) -> web.Response:
        self.others.append(f"{request.method} {request.path}")
        return _error(404, f"the script serves no {request.path}")


def _events(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The message as a stream: https://docs.anthropic.com/en/docs/build-with-claude/streaming."""
    blocks, usage = message["content"], message["usage"]
    begun = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        if block["type"] == "tool_use":
            empty, delta = (
                {**block, "input": {}},
                {"type": "input_json_delta", "partial_json": json.dumps(block["input"])},
            )
        else:
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": usage["output_tokens"]}})
    events.append({"type": "message_stop"})
    return events


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"type": "error", "error": {"type": "api_error", "message": message}}, status=status)


def _texts(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


@contextmanager
def served(path: Path) -> Iterator[dict[str, str]]:
    """Serve the scripts in a JSON file; yield the environment that leads an agent to them."""

    def block(given: Any) -> Block | str:
        return use(given["tool"], **given["input"]) if isinstance(given, dict) and "tool" in given else given

    scripts = [
        Script(each["when"], [[block(part) for part in turn] for turn in each["turns"]])
        for each in json.loads(path.read_text())
    ]
    with in_a_thread(ScriptedModel(scripts)) as model:
        yield model.environment()
