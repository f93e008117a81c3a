"""What tokens were counted and what they cost, of every shape that providers answer in."""

import json
from typing import Any

import pytest

from evolverpc_common.model_prices import PriceTable, TokenCounts
from sandbox_runtime.gateway.providers import Provider, anthropic, configured, known, openai
from sandbox_runtime.gateway.request_policy import parse_request
from sandbox_runtime.gateway.token_usage import JsonUsageReader, StreamUsageReader

TABLE = {
    "gpt": {
        "litellm_provider": "openai",
        "mode": "chat",
        "input_cost_per_token": 1e-6,
        "output_cost_per_token": 4e-6,
        "cache_read_input_token_cost": 5e-7,
        "input_cost_per_token_above_200k_tokens": 2e-6,
        "max_input_tokens": 300_000,
        "max_output_tokens": 1000,
    },
    "router/gpt": {"mode": "chat", "input_cost_per_token": 3e-6, "output_cost_per_token": 3e-6},
    "painter": {"mode": "image_generation", "litellm_provider": "openai", "input_cost_per_token": 1e-6},
}

CHAT = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
RESPONSES = {
    "input_tokens": 100,
    "output_tokens": 7,
    "input_tokens_details": {"cached_tokens": 60},
    "total_tokens": 107,
}
MESSAGES = {"input_tokens": 40, "output_tokens": 7, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0}
COUNTED = TokenCounts(input=40, cached=60, output=7)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (CHAT, COUNTED),
        (RESPONSES, COUNTED),
        (MESSAGES, COUNTED),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 4}}, TokenCounts(input=5, written=4)),
        (
            {**MESSAGES, "cache_creation_input_tokens": 9, "cache_creation": {"ephemeral_1h_input_tokens": 5}},
            TokenCounts(40, 60, 9, 5, 7),
        ),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"audio_tokens": 5}}, None),
        ({"prompt_tokens": 9, "completion_tokens_details": {"audio_tokens": 5}}, None),
        ({}, None),
    ],
)
def test_tokens_of_an_answer_that_is_json(usage: dict[str, Any], tokens: TokenCounts | None) -> None:
    reader = JsonUsageReader()
    for byte in json.dumps({"usage": usage}).encode():
        reader.feed(bytes([byte]))
    assert reader.tokens() == (tokens, tokens is not None)


def event(value: Any) -> bytes:
    return b"event: x\r\ndata: " + json.dumps(value).encode() + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("provider", "events", "last"),
    [
        (openai("k"), [{"choices": [{}], "usage": None}, {"choices": [], "usage": CHAT}], True),
        (
            openai("k"),
            [{"type": "response.created", "response": {"usage": None}}, {"response": {"usage": RESPONSES}}],
            True,
        ),
        (
            anthropic("k"),
            [
                {"message": {"usage": {**MESSAGES, "output_tokens": 1}}},
                {"type": "message_delta", "usage": {"output_tokens": 7, "input_tokens": None}},
            ],
            True,
        ),
        (anthropic("k"), [{"type": "message_start", "message": {"usage": MESSAGES}}], False),
        (
            anthropic("k"),
            [
                {"message": {"usage": {**MESSAGES, "service_tier": "priority"}}},
                {"type": "message_delta", "usage": {"output_tokens": 7}},
            ],
            False,
        ),
        (openai("k"), [{"choices": [{}], "usage": CHAT}], False),
    ],
)
def test_tokens_of_a_stream_of_events(provider: Provider, events: list[Any], last: bool) -> None:
    reader = StreamUsageReader(provider.dialect, hide_usage=False)
    stream = b"".join(map(event, events))
    assert b"".join(reader.feed(stream[place : place + 5]) for place in range(0, len(stream), 5)) == stream
    assert reader.tokens() == (COUNTED, last)
    if provider.dialect == "openai":
        reader.feed(b"data: [DONE]\n")
        assert reader.tokens() == (COUNTED, True)


def test_only_the_event_that_the_gateway_requested_is_hidden() -> None:
    shown = [{"choices": [{"delta": "a"}], "usage": None}, {"choices": [], "filters": 1}]
    stream = (
        event(shown[0])
        + event({"choices": [], "usage": CHAT}).removeprefix(b"event: x\r\n")
        + event(shown[1])
        + b"data: cut"
    )
    for size in (1, 7, len(stream)):
        reader = StreamUsageReader("openai", hide_usage=True)
        passed = b"".join(reader.feed(stream[place : place + size]) for place in range(0, len(stream), size))
        assert passed + reader.rest() == event(shown[0]) + event(shown[1]) + b"data: cut"
        assert reader.tokens() == (COUNTED, True)


def test_an_answer_at_another_price_is_not_priced() -> None:
    for more in ({"service_tier": "priority"}, {"usage": {**MESSAGES, "server_tool_use": {"web_search_requests": 1}}}):
        reader = JsonUsageReader()
        reader.feed(json.dumps({"usage": MESSAGES, **more}).encode())
        assert reader.tokens() == (COUNTED, False)


@pytest.mark.parametrize(
    ("path", "more", "usd"),
    [
        ("/chat/completions", {"max_tokens": 10}, 40e-6),
        ("/chat/completions", {"max_tokens": 10, "max_completion_tokens": 20, "n": 128}, 10240e-6),
        ("/chat/completions", {}, 4e-3),
        ("/chat/completions", {"max_tokens": 10**6}, 4e-3),
        ("/responses", {"max_output_tokens": 10}, 40e-6),
        ("/completions", {"max_tokens": 10, "best_of": 128, "prompt": ["a", "b"]}, 10240e-6),
        ("/completions", {"max_tokens": 10, "prompt": [1, 2, 3]}, 40e-6),
        ("/embeddings", {}, 0.0),
    ],
)
def test_the_most_that_a_call_can_cost(path: str, more: dict[str, Any], usd: float) -> None:
    price = PriceTable({}, TABLE).of("openai", "gpt")
    assert price is not None
    asked = parse_request(openai("k"), path, json.dumps({"model": "gpt", **more}).encode())
    read = len(asked.sent) * 1e-6  # no token is less than a byte
    assert read + usd < asked.max_cost_usd(price) < read + usd + 2e-3


def test_input_that_is_not_text_counts_as_the_models_whole_context() -> None:
    price = PriceTable({}, TABLE).of("openai", "gpt")
    assert price is not None
    video = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    for more in (
        {"previous_response_id": "1"},
        {"input": [{"type": "input_image", "file_id": "1"}]},
        {"input": [{"content": [video]}]},
        {"prompt": {"id": "1"}},
    ):
        asked = parse_request(openai("k"), "/responses", json.dumps({"model": "gpt", **more}).encode())
        assert asked.max_cost_usd(price) >= 0.6


def test_providers_are_read_from_the_environment() -> None:
    urls = {"OPENAI_API_BASE": "https://old.example/v1", "OPENAI_BASE_URL": "https://my.example/v1/"}
    found = known({"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-2", **urls})
    assert [provider.url("/messages") for provider in found] == [
        "https://my.example/v1/messages",
        "https://api.anthropic.com/v1/messages",
    ]
    assert found[1].key_headers() == {"x-api-key": "sk-2"} and "sk-" not in repr(found)
    assert found[1].env("http://g", "t") == {"ANTHROPIC_BASE_URL": "http://g/anthropic", "ANTHROPIC_API_KEY": "t"}
    assert known({}) == ()
    own = configured("own", "https://a.example", {"KEY": "sk-3"}, key_env="KEY", dialect="anthropic")
    assert own.key_headers() == {"x-api-key": "sk-3"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "A"},
        {"base_url": "ftp://a.example"},
        {"base_url": "https://user:pass@a.example"},
        {"key_env": "BAD"},
        {"key_env": "NONE"},
        {"key_header": "a: b"},
        {"dialect": "other"},
    ],
)
def test_a_provider_that_cannot_be_is_refused_without_its_key(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="provider") as caught:
        configured(**{"name": "a", "base_url": "https://a.example/v1", "environ": {"BAD": "sk-\nsecret"}, **wrong})
    assert "secret" not in str(caught.value)
