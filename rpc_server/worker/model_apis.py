"""What requests to a model's API and the failures in its responses look like, and what its calls took."""

from __future__ import annotations

import functools
import json
import re
from typing import Any, NamedTuple

PATH = re.compile(
    r"/(completions|responses|embeddings|messages|chat|text/chat_stream|text/generation|text/generation_stream|generate"
    r"|embed|rerank|predictions|invoke|invocations)/?$|:(stream)?rawPredict$|:predict$",
    re.IGNORECASE,
)
"""Of OpenAI, Anthropic, Cohere, Ollama, Vertex, Replicate, Bedrock, watsonx, Databricks, and what is compatible."""

PATH_OF_MODELS = re.compile(
    r"/(chat/completions|images/(generations|edits|variations)|audio/(speech|transcriptions|translations)"
    r"|converse|converse-stream|invoke-with-response-stream)/?$|:(stream)?generateContent$|:(batch)?embedContents?$",
    re.IGNORECASE,
)
"""That only models have: what is sent there asks one, also if its body cannot be read."""

ASKED = {
    *("messages", "message", "prompt", "input", "inputs", "inputText", "contents", "content", "requests"),
    *("texts", "query", "instances", "anthropic_version"),
}
"""Fields of which a request to a model has one, beside the name of the model."""

MODEL_IN_PATH = re.compile(r"/(?:models?|deployments|engines|serving-endpoints|endpoints)/([^/:?]+)")
WITHOUT_A_NAME = "/chat/completions"
"""A path that needs no name of a model: servers of a single one expect none."""

TRANSIENT = re.compile(
    r"rate.?limit|too.?many|overload|quota|exhausted|unavailable|server.?error|^api_error$|internal|time.?d?.?out|deadline"
    r"|throttl|slow.?down|capacity|request.?limit.?exceeded|bandwidth.?limit|throughput.?exceeded|model.?stream.?error",
    re.IGNORECASE,
)
LASTING = re.compile(
    r"invalid|auth|permission|forbidden|denied|not.?found|content|context|policy|safety|too.?large|unsupported|validation",
    re.IGNORECASE,
)

MAX_NAME = 64
"""Characters of the name of an error; what is longer, or has spaces, is a sentence."""


_MAX_HOST = 256  # in the contract


class Endpoint(NamedTuple):
    """What a request is sent to. `host`: with its port if that is not the scheme's own."""

    host: str
    is_of_models: bool
    may_be_of_models: bool
    needs_no_name: bool
    model: str | None


class Request(NamedTuple):
    """Whether a request asks a model, and the model's name where it states one."""

    is_of_model: bool
    model: str | None = None


class StatedError(NamedTuple):
    """An error that a response states."""

    reason: str
    is_transient: bool


def is_transient_status(status: int) -> bool:
    """Return whether an HTTP status is of a transient failure."""
    return status in (408, 425, 429) or 500 <= status <= 599


def is_transient_code(code: str) -> bool:
    """Return whether the name of an error, such as `rate_limit_exceeded`, is of a transient failure."""
    return TRANSIENT.search(code) is not None


@functools.lru_cache(maxsize=64)
def endpoint_of(method: str, url: str) -> Endpoint:
    """Return what the method and the URL of a request show."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    host = host.rpartition("@")[2].partition("?")[0].lower()
    default = {"http": ":80", "https": ":443"}.get(scheme)
    if default and host.endswith(default):
        host = host[: -len(default)]
    path = (slash + path).partition("?")[0]
    is_of_models = method == "POST" and PATH_OF_MODELS.search(path) is not None
    named = MODEL_IN_PATH.search(path)
    return Endpoint(
        host[:_MAX_HOST],
        is_of_models,
        is_of_models or (method == "POST" and PATH.search(path) is not None),
        path.rstrip("/").endswith(WITHOUT_A_NAME),
        named and named.group(1),
    )


def read_request(endpoint: Endpoint, body: Any) -> Request:
    """Return what a request asks; `body`: bytes or text, and anything else if it is not known."""
    if not endpoint.may_be_of_models:
        return Request(False)
    asked = _fields(body)
    if asked is None:
        return Request(endpoint.is_of_models, endpoint.model)
    model = asked.get("model") or asked.get("model_id") or endpoint.model
    if not ASKED.intersection(asked) or not (model or endpoint.needs_no_name):
        return Request(False)
    return Request(True, model if isinstance(model, str) else None)


def prompt_of(body: Any) -> str | None:
    """Return what is equal for the bodies of requests that ask the same, also of another model; None if unreadable."""
    asked = _fields(body)
    return None if asked is None else repr([(name, asked[name]) for name in sorted(ASKED.intersection(asked))])


def _fields(body: Any) -> dict[str, Any] | None:
    asked = parsed(body) if isinstance(body, (bytes, str)) else None
    return asked if isinstance(asked, dict) else None


def stated_error(answer: Any, *, in_stream: bool = False, is_error: bool = False) -> StatedError | None:
    """Return the error that a body, or one event of a stream, states; None if it states none.

    An error `in_stream` is transient, unless it states a reason that lasts. `is_error`: the event is called an error.
    """
    if isinstance(answer, list):  # Gemini's stream as one JSON text
        return next((found for found in map(stated_error, answer) if found is not None), None)
    if not isinstance(answer, dict):
        return StatedError("error event", True) if is_error else None
    inner, choices = answer.get("response"), answer.get("choices")
    holders = [answer, inner, *(choices if isinstance(choices, list) else ())]
    error = next((each["error"] for each in holders if isinstance(each, dict) and each.get("error")), None)
    if not error:
        if not is_error and answer.get("type") != "error":
            return None
        error, in_stream = answer, True
    codes = [error.get(name) for name in ("code", "status", "type", "message")] if isinstance(error, dict) else [error]
    for code in codes:
        number = int(code) if isinstance(code, (int, str)) and str(code).isdigit() else None
        if number is not None and 400 <= number <= 599:
            return StatedError(str(number), is_transient_status(number))
    texts = [code for code in codes if isinstance(code, str) and code != "error"]
    names = [text for text in texts if len(text) <= MAX_NAME and " " not in text]
    transient = next(filter(is_transient_code, names), None)
    if transient is not None:
        return StatedError(transient, True)
    if any(map(LASTING.search, names)):
        return StatedError(names[0], False)
    words = next(filter(None, map(TRANSIENT.search, texts)), None)
    if words is not None:
        return StatedError(words.group(), True)
    return StatedError(names[0] if names else "error", in_stream)


def parsed(text: Any) -> Any:
    """Return the JSON value of a text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


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
