"""The calls of models of a DSPy program: their tokens, those that DSPy's cache answers, and those that fail."""

import pytest

from tests.rpc_server.model_provider import COUNTED, provider

__all__ = ["provider"]


async def test_calls_of_a_dspy_program_are_counted_and_cached_ones_are_free(opened, provider):
    env = {"PROVIDER_URL": provider, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    async with opened("litellm_program.Ask", metric="litellm_program.metric", env=env) as running:
        first = await running.one({"question": "why?"})
        again = await running.one({"question": "why?"})
    assert (first["status"], first["score"]) == ("ok", 1.0), first
    models = {"openai/gpt-4o-mini": COUNTED}
    assert first["usage"] == {"calls": 1, "input_tokens": 100, "output_tokens": 20, "models": models}
    assert again["usage"] == {"cost_usd": 0.0, "calls": 0}


@pytest.mark.parametrize(
    ("program", "metric", "kind"),
    [
        pytest.param("Ask", "metric", None, marks=pytest.mark.long),
        ("Hiding", "metric", "model_unavailable"),
        pytest.param("Silent", "judged_by_a_model", "model_unavailable", marks=pytest.mark.long),
    ],
)
async def test_an_outage_of_the_programs_or_the_metrics_model_is_no_score(opened, provider, program, metric, kind):
    env = {"PROVIDER_URL": provider.replace("/v1", "/refused/v1"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    async with opened(f"litellm_program.{program}", metric=f"litellm_program.{metric}", env=env) as running:
        result = await running.one({"question": "why?"})
    assert result["status"] == "infra_error", result
    assert result["error"]["type"] == (kind or result["error"]["type"])
    [calls] = result["hosts"].values()
    assert (calls["succeeded"], calls["reason"]) == (0, "429")
