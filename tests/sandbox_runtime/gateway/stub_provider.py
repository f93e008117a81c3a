"""A model provider on loopback that records what it saw, and answers as the test configures it."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

from tests.support.web_hosts import Handler, web_host

KEY = "sk-the-real-key-0123456789"

Answer = Handler


@dataclass(frozen=True)
class Seen:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class StubProvider:
    """Used by `async with`. `answer` may be changed at any time."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.answer: Answer = completion()
        self.left = asyncio.Event()
        """Set after a client closed the connection during an answer."""
        self.url = ""

    async def __aenter__(self) -> Self:
        self._host = web_host(self._handle)
        self.url = f"http://{await self._host.__aenter__()}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._host.__aexit__(None, None, None)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        self.seen.append(
            Seen(request.method, request.raw_path, dict(request.headers), json.loads(content) if content else None)
        )
        try:
            return await self.answer(request)
        except (asyncio.CancelledError, ConnectionError):
            self.left.set()
            raise


def completion(tokens_in: int = 1000, tokens_out: int = 1000, *, text: str = "hello", seconds: float = 0.0) -> Answer:
    """A chat completion, after so long."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
        return web.json_response(
            {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
        )

    return answer


def replying(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
    """Just this."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=headers)

    return answer


def events(parts: Sequence[bytes], between: asyncio.Semaphore | None = None) -> Answer:
    """A stream of events in these chunks; before each one `between` is acquired."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            if between is not None:
                await between.acquire()
            await response.write(part)
        await response.write_eof()
        return response

    return answer


def chunk(content: str | None, usage: Mapping[str, int] | None = None) -> bytes:
    """An event of a streamed chat completion; without content: the last, which has the usage alone."""
    choices = [] if content is None else [{"index": 0, "delta": {"content": content}}]
    return (
        b"data: "
        + json.dumps({"object": "chat.completion.chunk", "choices": choices, "usage": usage}).encode()
        + b"\n\n"
    )
