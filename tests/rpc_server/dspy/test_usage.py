"""The calls of models of a DSPy program: their tokens, those that DSPy's cache answers, and those that fail."""

from tests.rpc_server.model_provider import COUNTED, provider

__all__ = ["provider"]


async def test_calls_of_a_dspy_program_are_counted_cached_ones_are_free_and_a_hidden_outage_is_no_score(
    opened, provider
):
    env = {"PROVIDER_URL": provider, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    async with opened("litellm_program.Ask", metric="litellm_program.metric", env=env) as running:
        first, again, refused = [await running.one({"question": each}) for each in ("why?", "why?", "refused?")]
    assert (first["status"], first["score"]) == ("ok", 1.0), first
    models = {"gpt-4o-mini": COUNTED}
    assert first["usage"] == {"calls": 1, "input_tokens": 100, "output_tokens": 20, "models": models}
    assert again["usage"] == {"cost_usd": 0.0, "calls": 0}
    assert refused["status"] == "infra_error", refused
    assert refused["error"]["type"] == "model_unavailable"
    [calls] = refused["hosts"].values()
    assert (calls["succeeded"], calls["reason"]) == (0, "429")
