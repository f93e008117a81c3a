"""What the calls of models in a result's `usage` cost, by the prices that the gateway uses."""

from collections.abc import Mapping
from typing import Any

from evolverpc_common.model_prices import PriceTable, TokenCounts


def priced(usage: Mapping[str, Any], prices: PriceTable) -> dict[str, Any]:
    """The contract's `Usage` with `cost_usd` (US dollars) if it lacks one and every model in `models` has a price."""
    models = usage.get("models")
    if usage.get("cost_usd") is not None or not models:
        return dict(usage)
    costs = [_cost(name, taken, prices) for name, taken in models.items()]
    known = [cost for cost in costs if cost is not None]
    return {**usage, "cost_usd": sum(known)} if len(known) == len(costs) else dict(usage)


def _cost(name: str, taken: Mapping[str, Any], prices: PriceTable) -> float | None:
    price = prices.named(name)
    read, output = taken.get("input_tokens"), taken.get("output_tokens")
    if price is None or read is None or output is None:
        return None
    cached, written = (taken.get(part) or 0 for part in ("cached_input_tokens", "cache_write_tokens"))
    tokens = TokenCounts(max(read - cached - written, 0), cached, written, 0, output)
    return price.cost(tokens, taken.get("calls") or 1)
