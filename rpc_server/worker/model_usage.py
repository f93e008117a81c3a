"""Count the tokens of calls of models, and add up what they took."""

from __future__ import annotations

from typing import Any


def add_call(models: dict[str, dict[str, Any]], model: str, taken: dict[str, int] | None) -> None:
    """Add a call to the counts by model. Unknown tokens make the model's counts unknown."""
    counts = models.setdefault(model, {"calls": 0, "input_tokens": 0, "output_tokens": 0})
    counts["calls"] += 1
    if taken is None or "input_tokens" not in counts:
        models[model] = {"calls": counts["calls"]}
        return
    for name, count in taken.items():
        counts[name] = counts.get(name, 0) + count


def usage_of(models: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the contract's `Usage`: known sums over all models, and the counts of each."""
    usage: dict[str, Any] = {"calls": sum(counts["calls"] for counts in models.values())}
    for name in ("input_tokens", "output_tokens"):
        if all(name in counts for counts in models.values()):
            usage[name] = sum(counts[name] for counts in models.values())
    usage["models"] = models
    return usage


def sum_usage(usage: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return the sum of both, also by model; a non-number is kept for the result's check to report."""
    total = dict(usage)
    for name, amount in more.items():
        known = total.get(name)
        if isinstance(known, (int, float)) and isinstance(amount, (int, float)):
            total[name] = known + amount
        elif isinstance(known, dict) and isinstance(amount, dict):
            total[name] = sum_usage(known, amount)
        else:
            total[name] = amount
    return total


def join_usage(usage: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """Return the usage of calls together: what is unknown of one of them is unknown of all."""
    if not usage:
        return more
    total = sum_usage(usage, more)
    both = [(total, usage, more)]
    for model, counts in total.get("models", {}).items():
        parts = [each.get("models", {}).get(model) for each in (usage, more)]
        if all(parts):
            both.append((counts, parts[0], parts[1]))
    for summed, *parts in both:
        for name in ("input_tokens", "output_tokens", "cost_usd"):
            if not all(name in part for part in parts):
                summed.pop(name, None)
    return total


def tokens_of(usage: dict[str, Any]) -> dict[str, int] | None:
    """Return the contract's `ModelCallUsage` of a provider's `usage`; None if it has no counts.

    Of OpenAI's chat completions, embeddings and responses, and Anthropic's messages, which count cached input apart.
    """
    if "prompt_tokens" in usage:
        details = _object(usage.get("prompt_tokens_details"))
        spoken = _count(details.get("audio_tokens"))
        spoken += _count(_object(usage.get("completion_tokens_details")).get("audio_tokens"))
        if spoken:
            return None  # these have prices of their own
        read, output = _count(usage["prompt_tokens"]), _count(usage.get("completion_tokens"))
    elif "input_tokens" in usage and ("input_tokens_details" in usage or "total_tokens" in usage):
        details = _object(usage.get("input_tokens_details"))
        read, output = _count(usage["input_tokens"]), _count(usage.get("output_tokens"))
    elif "input_tokens" in usage:
        cached = _count(usage.get("cache_read_input_tokens"))
        written = _count(usage.get("cache_creation_input_tokens"))
        details = {"cached_tokens": cached, "cache_write_tokens": written}
        read, output = _count(usage["input_tokens"]) + cached + written, _count(usage.get("output_tokens"))
    else:
        return None
    cached = min(_count(details.get("cached_tokens")), read)
    written = min(_count(details.get("cache_write_tokens", details.get("cache_creation_tokens"))), read - cached)
    counts = {"input_tokens": read, "output_tokens": output}
    further = {"cached_input_tokens": cached, "cache_write_tokens": written}
    return {**counts, **{name: count for name, count in further.items() if count}}


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _count(found: Any) -> int:
    return found if isinstance(found, int) and found > 0 else 0
