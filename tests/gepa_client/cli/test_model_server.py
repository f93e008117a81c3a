"""A model server reads and writes conversations as OpenAI and Anthropic do, tools and schemas included."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from gepa_client.cli.model_server import Conversation, ModelServer, ToolCall

TOOL = {"name": "weather", "description": "The weather.", "parameters": {"type": "object"}}
SCHEMA = {"type": "object"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


@pytest.fixture
def asked() -> Iterator[tuple[ModelServer, list[Conversation]]]:
    """A server that calls the first tool until it has an answer, and what it was asked."""
    conversations: list[Conversation] = []

    def answer(conversation: Conversation) -> str | ToolCall:
        conversations.append(conversation)
        is_new = conversation.messages[-1][0] == "user"
        return ToolCall(next(iter(conversation.tools)), {"city": "Rome"}) if is_new else "sunny"

    with ModelServer(answer).in_thread() as server:
        yield server, conversations


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    with urllib.request.urlopen(url, json.dumps({"model": "m", **body}).encode(), timeout=10) as response:  # noqa: S310
        answer: dict[str, Any] = json.load(response)
        return answer


def test_it_calls_a_tool_and_answers_by_chat_completions(asked: tuple[ModelServer, list[Conversation]]) -> None:
    server, conversations = asked
    url = server.variables["OPENAI_BASE_URL"] + "/chat/completions"
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Rome?"}]
    tools = [{"type": "function", "function": TOOL}]
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    [choice] = post(url, {"messages": messages, "tools": tools, "response_format": schema})["choices"]
    assert choice["finish_reason"] == "tool_calls"
    [call] = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    messages += [choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "20"}]
    [choice] = post(url, {"messages": messages, "tools": tools})["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "sunny")
    assert conversations == [
        Conversation("Be short.", (("user", "Rome?"),), {"weather": "The weather."}, SCHEMA),
        Conversation(
            "Be short.", (("user", "Rome?"), ("assistant", ""), ("tool", "20")), {"weather": "The weather."}, {}
        ),
    ]


def test_it_calls_a_tool_and_answers_by_responses(asked: tuple[ModelServer, list[Conversation]]) -> None:
    server, conversations = asked
    url = server.variables["OPENAI_BASE_URL"] + "/responses"
    body = {"instructions": "Be short.", "tools": [{"type": "function", **TOOL}]}
    text = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}
    answer = post(url, {**body, "input": "Rome?", "text": text})
    [item] = answer["output"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "weather", '{"city": "Rome"}')
    items = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Rome?"}]},
        item,
        {"type": "function_call_output", "call_id": item["call_id"], "output": "20"},
    ]
    [item] = post(url, {**body, "input": items})["output"]
    assert (item["type"], item["content"][0]["text"]) == ("message", "sunny")
    assert conversations == [
        Conversation("Be short.", (("user", "Rome?"),), {"weather": "The weather."}, SCHEMA),
        Conversation("Be short.\nBe kind.", (("user", "Rome?"), ("tool", "20")), {"weather": "The weather."}, {}),
    ]


def test_it_calls_a_tool_by_messages(asked: tuple[ModelServer, list[Conversation]]) -> None:
    server, conversations = asked
    body = {"system": "Be short.", "messages": [{"role": "user", "content": "Rome?"}], "tools": [TOOL]}
    answer = post(server.variables["ANTHROPIC_BASE_URL"] + "/v1/messages", body)
    assert answer["stop_reason"] == "tool_use"
    assert answer["content"][0]["input"] == {"city": "Rome"}
    assert conversations == [Conversation("Be short.", (("user", "Rome?"),), {"weather": "The weather."}, {})]
