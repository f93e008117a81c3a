"""Count the tokens of a program's model calls over httpx or httpx2, which most providers' clients use."""

from __future__ import annotations

import contextvars
import functools
import json
import sys
import threading
from typing import Any, Callable

PATHS = ("/chat/completions", "/completions", "/responses", "/embeddings", "/messages")
"""Path suffixes at which OpenAI-compatible providers and Anthropic answer, and charge."""

HTTP_PACKAGES = ("httpx", "httpx2")
"""The second is what newer clients use, such as Anthropic's from version 2 on."""

_current: contextvars.ContextVar[ModelCallUsage | None] = contextvars.ContextVar("model_calls", default=None)
_open: set[ModelCallUsage] = set()
_lock = threading.Lock()


class ModelCallUsage:
    """The model calls of one example, while it is open: a context manager.

    A call belongs to the example of its context. A thread of the program's own has no such context: its calls belong to
    the only open example; if there are several, the usage of all of them is unknown.
    """

    def __init__(self) -> None:
        self._models: dict[str, dict[str, Any]] = {}
        self._is_known = True

    def __enter__(self) -> ModelCallUsage:
        self._watched = watch()
        _current.set(self)
        with _lock:
            _open.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _open.discard(self)
        _current.set(None)
        if watch() != self._watched:
            self._is_known = False  # a package was imported meanwhile, and may have been used before it was watched

    def add(self, model: str, usage: Any) -> None:
        """Add one call; `usage`: as the provider sent it."""
        taken = tokens_of(usage) if isinstance(usage, dict) else None
        with _lock:
            add_call(self._models, model, taken)

    def lose(self) -> None:
        """Mark the usage as unknown: a call may belong to this example."""
        self._is_known = False

    @property
    def usage(self) -> dict[str, Any] | None:
        """The contract's `Usage`; None if there was no call, or not everything is known."""
        return usage_of(self._models) if self._models and self._is_known else None


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


def watch() -> list[str]:
    """Observe the requests of the packages that are imported; return their names. The program behaves as before."""
    watched = []
    for name in HTTP_PACKAGES:
        package: Any = sys.modules.get(name)
        if not hasattr(package, "Client") or not hasattr(package, "AsyncClient"):
            continue  # not imported, or not yet as a whole
        watched.append(name)
        with _lock:
            if not hasattr(package, "_evolverpc_watched"):
                package.Client.send = _watched(package.Client.send)
                package.AsyncClient.send = _watched_async(package.AsyncClient.send)
                package._evolverpc_watched = True
    return watched


def _watched(send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    def watched(client: Any, request: Any, *, stream: bool = False, **options: Any) -> Any:
        response = send(client, request, stream=stream, **options)
        _note(request, response, stream)
        return response

    return watched


def _watched_async(send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    async def watched(client: Any, request: Any, *, stream: bool = False, **options: Any) -> Any:
        response = await send(client, request, stream=stream, **options)
        _note(request, response, stream)
        return response

    return watched


def _note(request: Any, response: Any, streamed: bool) -> None:
    """Count the call if it is one of a model; providers charge for successful responses only."""
    if request.method != "POST" or not request.url.path.endswith(PATHS) or response.status_code >= 300:
        return
    calls = _current.get()
    if calls is None:
        with _lock:
            calls = next(iter(_open)) if len(_open) == 1 else None
            for each in () if calls is not None else _open:
                each.lose()
    if calls is None:
        return
    answer = {} if streamed else _json(response.content)
    name = answer.get("model")
    if isinstance(asked := _json(request.content).get("model") if hasattr(request, "_content") else None, str):
        name = asked
    if isinstance(name, str) and name:
        calls.add(name, answer.get("usage"))
    else:
        calls.lose()


def _json(text: bytes) -> dict[str, Any]:
    try:
        return _object(json.loads(text))
    except ValueError:
        return {}


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _count(found: Any) -> int:
    return found if isinstance(found, int) and found > 0 else 0
