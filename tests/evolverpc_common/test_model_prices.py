"""Calls of models that a result reports by their tokens get the price that the gateway gives them."""

from typing import Any

import pytest

from evolverpc_common.model_prices import PriceTable, priced

TABLE = {
    "gpt-x": {
        "litellm_provider": "text-completion-openai",
        "mode": "chat",
        "input_cost_per_token": 2e-6,
        "cache_read_input_token_cost": 1e-6,
        "cache_creation_input_token_cost": 3e-6,
        "cache_creation_input_token_cost_above_1hr": 5e-6,
        "output_cost_per_token": 8e-6,
        "input_cost_per_token_above_400k_tokens": 1e-5,
        "input_cost_per_token_above_200k_tokens": 4e-6,
    },
    "groq/llama": {
        "litellm_provider": "groq",
        "mode": "chat",
        "input_cost_per_token": 1e-6,
        "output_cost_per_token": 1e-6,
    },
}
TAKEN = {"calls": 1, "input_tokens": 1000, "output_tokens": 100}


def cost(models: dict[str, dict[str, Any]], given: dict[str, tuple[float, float]] | None = None) -> Any:
    found = priced({"calls": 1, "models": models}, PriceTable(given or {}, TABLE))
    assert found["models"] == models
    return found.get("cost_usd")


@pytest.mark.parametrize(
    ("models", "usd"),
    [
        ({"gpt-x": TAKEN}, 0.0028),
        ({"openai/gpt-x": TAKEN}, 0.0028),
        ({"gpt-x": {**TAKEN, "cached_input_tokens": 400}}, 0.0024),
        ({"gpt-x": {**TAKEN, "cache_write_tokens": 400, "cache_write_hour_tokens": 300}}, 0.0038),
        ({"gpt-x": {**TAKEN, "cache_write_tokens": 400, "cache_write_hour_tokens": 500}}, 0.004),
        ({"gpt-x": TAKEN, "groq/llama": TAKEN}, 0.0039),
        ({"gpt-x": {"calls": 3, "input_tokens": 300_000, "output_tokens": 0}}, 0.6),  # 100,000 each
        ({"gpt-x": {"calls": 1, "input_tokens": 300_000, "output_tokens": 0, "cached_input_tokens": 150_000}}, 0.75),
        ({"gpt-x": {"calls": 1, "input_tokens": 200_000, "output_tokens": 0}}, 0.4),
        ({"gpt-x": {"calls": 1, "input_tokens": 500_000, "output_tokens": 0}}, 5.0),
        ({"gpt-x": {"calls": 1}}, None),
        ({"gpt-x": TAKEN, "unheard-of": TAKEN}, None),
        ({"azure/gpt-x": TAKEN}, None),
    ],
)
def test_tokens_are_priced_by_model(models: dict[str, dict[str, Any]], usd: float | None) -> None:
    assert cost(models) == (None if usd is None else pytest.approx(usd))


def test_prices_of_the_settings_come_first() -> None:
    assert cost({"unheard-of": TAKEN}, {"unheard-of": (1.0, 10.0)}) == pytest.approx(0.002)
    assert cost({"openai/gpt-x": TAKEN}, {"openai/gpt-x": (1.0, 10.0)}) == pytest.approx(0.002)
    stated = {"calls": 1, "cost_usd": 0.5, "models": {"gpt-x": TAKEN}}
    assert priced(stated, PriceTable({}, TABLE)) == stated


def test_the_table_that_comes_with_litellm_prices_usual_names() -> None:
    for name in ("gpt-4o-mini", "openai/gpt-4o-mini", "claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"):
        assert priced({"models": {name: TAKEN}}, PriceTable({}))["cost_usd"] > 0, name
