"""The tokens of a program's calls of models are in its results, though the program notes no usage."""

import threading
from contextvars import Context

from rpc_server.worker.model_apis import add_call, endpoint_of, join_usage, read_request, tokens_of
from rpc_server.worker.network_calls import Call, ExampleCalls, begin
from tests.rpc_server.model_provider import COUNTED, provider

__all__ = ["provider"]


def environment(provider: str) -> dict[str, str]:
    return {"PROVIDER_URL": provider, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


TWICE = {name: 2 * count for name, count in COUNTED.items()}
MODELS = {
    "openai": {"gpt-4o-mini": COUNTED},
    "messages": {"claude-sonnet-4-5": {**COUNTED, "cache_write_tokens": 10, "cache_write_hour_tokens": 4}},
    "over_httpx2": {"gpt-4o-mini": COUNTED},
    "twice": {"gpt-4o-mini": TWICE},
    "thread": {"gpt-4o-mini": TWICE},
    "streamed": {"gpt-4o-mini": COUNTED},
    "refused": None,
    "nothing": None,
}


async def test_calls_are_counted_by_model(opened, provider):
    async with opened("calls_models.py", env=environment(provider), workers=1) as running:
        results = [await running.one({"by": by}) for by in MODELS]
        noted = await running.one({"by": "twice", "noted": {"cost_usd": 0.25, "input_tokens": 10}})
    assert noted["usage"] == {"cost_usd": 0.25, "input_tokens": 10}, "what is noted by hand stays as it is"
    for (by, models), result in zip(MODELS.items(), results, strict=True):
        assert result["status"] == ("infra_error" if by == "refused" else "rollout"), result
        assert result.get("usage", {}).get("models") == models
        if models is not None:
            [counts] = models.values()
            summed = {name: counts[name] for name in ("calls", "input_tokens", "output_tokens")}
            assert result["usage"] == {**summed, "models": models}


async def test_calls_belong_to_the_example_that_made_them(opened, provider):
    async with opened("calls_async.py", env=environment(provider), workers=1) as running:
        results = await running.evaluate(*({"model": f"model-{number}"} for number in range(8)))
    assert [list(result["usage"]["models"]) for result in results] == [[f"model-{number}"] for number in range(8)]
    assert all(result["usage"]["calls"] == 1 for result in results)


def test_the_model_is_that_of_the_path_and_no_argument_of_a_tool():
    gemini = endpoint_of("POST", "https://api.example/v1/models/gemini-2.5-pro:generateContent")
    arguments = b'{"contents": [{"parts": [{"functionCall": {"args": {"model": "Corolla"}}}]}]}'
    assert read_request(gemini, arguments) == (True, "gemini-2.5-pro")


def test_the_failure_of_a_host_is_that_of_its_last_call():
    with ExampleCalls() as calls:
        for status, headers in ((503, {"retry-after": "30"}), (500, {})):
            Call(calls.stray_branch(), "POST", "http://a.example/x", b"").answered(status, headers)
    assert calls.hosts == {"a.example": {"succeeded": 0, "failed": 2, "reason": "500"}}


def test_a_call_that_may_be_of_several_examples_makes_the_usage_of_all_unknown():
    asked = "POST", "http://a.example/v1/chat/completions", b'{"model": "m", "messages": []}'
    with ExampleCalls() as one, ExampleCalls() as other:
        for calls in (one, other):
            Call(calls.stray_branch(), *asked).answered(200, {})
        thread = threading.Thread(target=begin, args=asked)
        Context().run(thread.start)  # so it inherits no example, also where threads are watched
        thread.join()
    assert one.usage == other.usage == {"calls": 1}


def test_unknown_tokens_of_one_call_make_those_of_its_model_unknown():
    models = {}
    for taken in ({"input_tokens": 5, "output_tokens": 2}, None, {"input_tokens": 5, "output_tokens": 2}):
        add_call(models, "gpt", taken)
    assert models == {"gpt": {"calls": 3}}
    known, unknown = {"calls": 1, "input_tokens": 5}, {"calls": 1}
    joined = join_usage({**known, "models": {"gpt": known}}, {**unknown, "models": {"gpt": unknown}})
    assert joined == {"calls": 2, "models": {"gpt": {"calls": 2}}}


def test_tokens_that_have_prices_of_their_own_make_those_of_a_call_unknown():
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    assert tokens_of(usage) == {"input_tokens": 9, "output_tokens": 2}
    assert tokens_of({**usage, "prompt_tokens_details": {"audio_tokens": 5}}) is None
    assert tokens_of({**usage, "completion_tokens_details": {"audio_tokens": 1}}) is None
