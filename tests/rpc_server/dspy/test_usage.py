"""The calls of models of a DSPy program: their tokens, those that DSPy's cache answers, and those that fail."""

from tests.rpc_server.model_provider import COUNTED, provider

__all__ = ["provider"]


async def test_calls_of_a_dspy_program_are_counted_and_cached_ones_are_free(opened, provider):
    env = {"PROVIDER_URL": provider, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    async with opened("litellm_program.Ask", metric="litellm_program.metric", env=env) as running:
        first = await running.one({"question": "why?"})
        again = await running.one({"question": "why?"})
    assert (first["status"], first["score"]) == ("ok", 1.0), first
    models = {"gpt-4o-mini": COUNTED}
    assert first["usage"] == {"calls": 1, "input_tokens": 100, "output_tokens": 20, "models": models}
    assert again["usage"] == {"cost_usd": 0.0, "calls": 0}


async def test_an_outage_that_the_program_hides_is_no_score(opened, provider):
    env = {"PROVIDER_URL": provider.replace("/v1", "/refused/v1"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    async with opened("litellm_program.Hiding", metric="litellm_program.metric", env=env) as running:
        result = await running.one({"question": "why?"})
    assert result["status"] == "infra_error", result
    assert result["error"]["type"] == "model_unavailable"
    [calls] = result["hosts"].values()
    assert (calls["succeeded"], calls["reason"]) == (0, "429")
