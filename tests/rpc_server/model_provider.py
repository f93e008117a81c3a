"""A model provider on loopback, for programs that ask one."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from tests.support.loops import in_a_thread
from tests.support.web_hosts import web_host

OPENAI = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 40}}
ANTHROPIC = {"input_tokens": 50, "output_tokens": 20, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 10}
ANTHROPIC |= {"cache_creation": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 4}}
ANSWER = "[[ ## answer ## ]]\nso\n\n[[ ## completed ## ]]"
"""In the format that DSPy asks for."""

COUNTED = {"calls": 1, "input_tokens": 100, "output_tokens": 20, "cached_input_tokens": 40}


async def answer(request: web.Request) -> web.Response:
    """Answer as OpenAI or Anthropic does, with the same tokens each time; ask for a tool if one is offered."""
    if request.method == "GET":
        return web.json_response({"data": []})
    asked = await request.json()
    if "/refused/" in request.path:
        return web.json_response({"error": {"message": "slow down"}}, status=429)
    if request.path.endswith("/messages"):
        text = {"type": "text", "text": ANSWER}
        head = {"id": "1", "type": "message", "role": "assistant", "model": asked["model"], "stop_reason": "end_turn"}
        return web.json_response({**head, "content": [text], "usage": ANTHROPIC})
    message: dict[str, Any] = {"role": "assistant", "content": ANSWER}
    if asked.get("tools") and asked["messages"][-1]["role"] != "tool":
        function = {"name": asked["tools"][0]["function"]["name"], "arguments": '{"city": "Rome"}'}
        message = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    head = {"id": "1", "object": "chat.completion", "created": 1, "model": f"{asked['model']}-2024-07-18"}
    usage = OPENAI | {"total_tokens": 120}
    if not asked.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({**head, "choices": [choice], "usage": usage})
    chunk = {**head, "object": "chat.completion.chunk"}
    delta = {"index": 0, "delta": message, "finish_reason": "stop"}
    counted = [{**chunk, "choices": [], "usage": usage}] * ("stream_options" in asked)
    events = [f"data: {json.dumps(each)}\n\n" for each in ({**chunk, "choices": [delta]}, *counted)]
    return web.Response(text="".join(events), content_type="text/event-stream")


@pytest.fixture
def provider() -> Iterator[str]:
    with in_a_thread(web_host(answer)) as host:
        yield f"http://{host}/v1"
