"""Count the tokens of calls of models, and add up what they took."""

from __future__ import annotations

from typing import Any


def add_call(models: dict[str, dict[str, Any]], model: str, taken: dict[str, int] | None) -> None:
    """Add a call to the counts by model. Unknown input or output of one call makes the model's counts unknown."""
    counts = models.setdefault(model, {"calls": 0, "input_tokens": 0, "output_tokens": 0})
    counts["calls"] += 1
    if taken is None or not taken.keys() >= {"input_tokens", "output_tokens"} or "input_tokens" not in counts:
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


def usage_in(answer: dict[str, Any]) -> dict[str, Any] | None:
    """Return the `usage` of a provider's answer; None if it has none, or if its tokens have no usual price.

    Tokens of priority tiers, and searches and other tools that the provider ran, cost more than the counts show.
    """
    usage = answer.get("usage")
    if not usage or not isinstance(usage, dict):
        return None
    if "priority" in (answer.get("service_tier"), usage.get("service_tier")):
        return None
    if "output" in answer:
        kinds = [str(_object(item).get("type")) for item in _list(answer["output"])]
        if any(kind.endswith("_call") and kind not in ("function_call", "custom_tool_call") for kind in kinds):
            return None
    for choice in _list(answer.get("choices")):
        message = choice.get("message") if isinstance(choice, dict) else None
        if isinstance(message, dict) and message.get("annotations"):
            return None
    is_searched = "server_tool_use" in usage and any(_object(usage["server_tool_use"]).values())
    return None if is_searched else usage


def tokens_of(usage: dict[str, Any]) -> dict[str, int] | None:
    """Return the contract's `ModelCallUsage` of a provider's `usage`; None if one of the counts is missing.

    Of OpenAI's chat completions, embeddings and responses, and Anthropic's messages, which count cached input apart.
    """
    read = usage.get("prompt_tokens", usage.get("input_tokens"))
    output = usage.get("completion_tokens", usage.get("output_tokens"))
    if "prompt_tokens" in usage and "completion_tokens" not in usage and usage.get("total_tokens") == read:
        output = 0  # of embeddings
    if type(read) is not int or type(output) is not int or read < 0 or output < 0:
        return None
    details = _object(usage.get("prompt_tokens_details", usage.get("input_tokens_details")))
    if details.get("audio_tokens") or _object(usage.get("completion_tokens_details")).get("audio_tokens"):
        return None  # these have prices of their own
    if any(name in usage for name in ("prompt_tokens", "input_tokens_details", "total_tokens")):
        cached = min(_count(details.get("cached_tokens")), read)
        written = _count(details.get("cache_write_tokens", details.get("cache_creation_tokens")))
        written = min(written, read - cached)
    else:
        cached, written = (_count(usage.get("cache_%s_input_tokens" % kind)) for kind in ("read", "creation"))
        read += cached + written
    hour = min(_count(_object(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")), written)
    parts = (("cached_input_tokens", cached), ("cache_write_tokens", written), ("cache_write_hour_tokens", hour))
    return {"input_tokens": read, "output_tokens": output, **{name: count for name, count in parts if count}}


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _count(found: Any) -> int:
    return found if isinstance(found, int) and found > 0 else 0
