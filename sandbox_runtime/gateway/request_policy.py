"""Parse a model request once, decide whether it is forwarded, and serialize again what was parsed.

Limits of the run, fields, and what a provider would do besides answering decide. A field that the gateway does not know
may make a provider, or a proxy in front of it, call another model, another address or another account, so it is refused
by name. The names are those of the OpenAI and Anthropic API references, and the sampling fields of OpenAI-compatible
servers. `Provider.extra_fields` adds more for one provider.
"""

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import orjson

from evolverpc_common.model_prices import ModelPrice
from sandbox_runtime.gateway.providers import FREE, Provider

RATE_WAIT_S = 30.0
"""Seconds that a call waits if there are more per minute than the policy allows."""


@dataclass(frozen=True)
class GatewayPolicy:
    """The limits of one run, over all of its sandboxes.

    `models`: which may be called, `gpt-4o*` or `anthropic/claude-*`; empty for all. `calls_per_minute`: None for no
    limit; a call waits up to `RATE_WAIT_S` and is then answered with 429. `cap_usd`: None for no limit. `prices`:
    `{model or provider/model: (US dollars per million input tokens, and output tokens)}`, used before the bundled
    table. Limits are positive, and prices at least 0.
    """

    models: tuple[str, ...] = ()
    calls_per_minute: int | None = None
    cap_usd: float | None = None
    prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def allows(self, provider: str, model: str) -> bool:
        """Return whether this model of this provider may be called."""
        names = (model, f"{provider}/{model}")
        return not self.models or any(fnmatchcase(name, pattern) for pattern in self.models for name in names)


_SAMPLING = frozenset({"temperature", "top_p", "top_k", "min_p", "seed", "stop", "user", "repetition_penalty"})
_OPENAI = _SAMPLING | {
    *("model", "stream", "stream_options", "logit_bias", "frequency_penalty", "presence_penalty", "top_logprobs"),
    *("metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    *("reasoning", "safety_identifier", "service_tier", "store", "thinking", "tool_choice", "tools"),
}
_COUNTED = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed"}
)

FORWARDED: Mapping[str, frozenset[str]] = {
    "/chat/completions": _OPENAI
    | {
        *("messages", "max_tokens", "max_completion_tokens", "n", "logprobs", "audio", "modalities", "prediction"),
        *("function_call", "functions", "reasoning_effort", "response_format", "verbosity", "web_search_options"),
    },
    "/completions": _OPENAI | {"prompt", "max_tokens", "n", "best_of", "logprobs", "echo", "suffix"},
    "/responses": _OPENAI
    | {
        *("input", "instructions", "prompt", "conversation", "previous_response_id", "max_output_tokens", "text"),
        *("max_tool_calls", "background", "include", "context_management", "truncation"),
    },
    "/embeddings": frozenset({"model", "input", "dimensions", "encoding_format", "user"}),
    "/messages": _COUNTED
    | {
        *("max_tokens", "stream", "temperature", "top_k", "top_p", "stop_sequences", "metadata", "service_tier"),
        *("container", "context_management", "compaction", "diagnostics", "inference_geo", "mcp_servers"),
        *("output_format", "betas"),
    },
    "/messages/count_tokens": _COUNTED | {"context_management", "mcp_servers", "betas"},
}
"""By path below `/v1`. `reaches` and `unpriced` check `web_search_options`, `mcp_servers`, `container` and tools."""


def first_refused(path: str, body: Mapping[str, object], extra: frozenset[str]) -> str | None:
    """Return the first field of the body that is not forwarded on this path; None if all are."""
    return next((name for name in body if name not in FORWARDED[path] and name not in extra), None)


_SEARCHES = re.compile(r":online$|-search-|deep-research|(^|/)sonar", re.IGNORECASE)

# Tuples: what is looked for in them comes from the sandbox, and may be of any type.
_USUAL_TIERS = (None, "auto", "default", "flex", "standard", "standard_only")
_FUNCTIONS = ("function", "custom", "local_shell", "apply_patch")
_CLIENTS_TOOLS = ("bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_")

_TOOL_FIELDS = frozenset(
    {
        *("name", "description", "input_schema", "input_examples", "cache_control", "strict", "type"),
        *("allowed_callers", "defer_loading", "eager_input_streaming", "function"),
    }
)
"""Fields of a tool without a type: a tool of the program itself."""

_TEXT_FIELDS = frozenset(
    {
        *("content", "text", "output", "input", "instructions", "refusal", "reasoning", "reasoning_content"),
        *("thinking", "title", "context", "name", "description", "query", "stdout", "stderr"),
    }
)
"""Fields of a conversation whose text a model reads unchanged."""

_NOT_FETCHED = frozenset(
    {"id", "call_id", "item_id", "tool_call_id", "tool_use_id", "annotations", "citations", "arguments"}
)
"""Fields that may look like addresses and are never fetched: ids, sources of texts, a model's tool calls."""

_REFERENCE = re.compile(r"\s*[a-z][a-z0-9+.-]*:(?!\s)", re.IGNORECASE)
_INLINE = re.compile(r"data:[\w.+-]+/[\w.+-]+(;[\w.+-]+=[\w.+-]+)*;base64,", re.IGNORECASE)


def reaches(model: str, body: Mapping[str, Any]) -> str | None:
    """Return what the provider would connect to for the sandbox, which egress cannot control; None if nothing."""
    if _SEARCHES.search(model):
        return "a model that searches by itself"
    for name, text in _references(body):
        if not _INLINE.match(text):
            return f"a file by its address in `{name}`: send it inline, as data:TYPE;base64,..."
    return _hosted(body)


def unpriced(body: Mapping[str, Any]) -> str | None:
    """Return what the request contains that the price per token does not cover; None if nothing."""
    if body.get("service_tier") not in _USUAL_TIERS or body.get("speed") not in (None, "standard"):
        return "a dearer service tier"
    if body.get("modalities") not in (None, ["text"]):
        return "an answer that is not text"
    if body.get("background"):
        return "an answer in the background"
    if body.get("inference_geo"):
        return "a choice of where the model runs"
    return _hosted(body)


def _hosted(body: Mapping[str, Any]) -> str | None:
    """Return what the provider would do besides answering, at a price of its own; an empty object requests it too."""
    for name in ("mcp_servers", "web_search_options", "container"):
        if body.get(name) is not None:
            return name
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind is None:
            unknown = (
                next((name for name in tool if name not in _TOOL_FIELDS), None) if isinstance(tool, dict) else tool
            )
            if unknown is not None:
                return f"the tool {unknown}"
        elif kind not in _FUNCTIONS and not str(kind).startswith(_CLIENTS_TOOLS):
            return f"the tool {kind}"
    return None


def _references(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every text of the conversation that has the form of an address and is not read as text, with its field."""
    left: list[tuple[str, Any]] = [
        ("content", body.get(name)) for name in ("messages", "input", "system", "prediction")
    ]
    prompt = body.get("prompt")
    variables = prompt.get("variables") if isinstance(prompt, dict) else None
    if isinstance(variables, dict):
        left += [("text", value) for value in variables.values()]  # their own names mean nothing
    while left:
        field, found = left.pop()
        if isinstance(found, str):
            if field not in _TEXT_FIELDS and _REFERENCE.match(found):
                yield field, found
        elif isinstance(found, list):
            left += [(field, part) for part in found]
        elif isinstance(found, dict):
            kind = str(found.get("type"))
            left += [(name, value) for name, value in found.items() if not _only_quoted(kind, name)]


def _only_quoted(kind: str, field: str) -> bool:
    """Return whether a field repeats a model's tool call or the source of a text, which no provider fetches."""
    if field in _NOT_FETCHED:
        return True
    if kind == "tool_use" or kind.endswith("_call"):
        return field in ("input", "action", "operation")
    return kind == "search_result" and field == "source"


OVERHEAD = 1_000
"""Tokens that a provider adds to a request: roles, and the description of tools."""

UNKNOWN_INPUT = 200_000
"""Tokens assumed for input that is not text, or that the provider stores, if the model's limit is not known."""

UNKNOWN_OUTPUT = 32_768
"""Tokens assumed for an answer that neither the request nor the model's price limits."""

MODEL = 256
"""Characters of a model's name."""

_NOT_TEXT = (
    *(b'"image', b'"video', b'"audio', b'"file', b'"document', b'"input_'),
    *(b'"previous_response_id', b'"conversation"'),
)
_LIMITS = {
    "/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/completions": ("max_tokens",),
    "/responses": ("max_output_tokens",),
    "/messages": ("max_tokens",),
}
_NUMBERS = {
    **dict.fromkeys(("max_completion_tokens", "max_output_tokens", "max_tokens"), 1_000_000),
    **dict.fromkeys(("n", "best_of"), 128),
}
"""Fields that must be whole numbers, with their maximum."""


class UnusableRequest(Exception):
    """No provider could answer the request, or it has a field that the gateway does not forward; with the reason."""


@dataclass
class ModelRequest:
    """One parsed request. `path`: below `/v1`.

    `usage_added`: the gateway asked for the usage of the stream, so the sandbox must not see it. `limit`: tokens of one
    answer as the request limits them, 0 if it does not. `answers`: how many are requested. `from_kept`: the provider
    stores a part of the input. `reaches`, `unpriced`: see `request_policy`. `sent`: the body to forward.
    """

    path: str
    model: str
    streamed: bool
    usage_added: bool
    limit: int
    answers: int
    from_kept: bool
    reaches: str | None
    unpriced: str | None
    sent: bytes = field(repr=False)

    @property
    def free(self) -> bool:
        """Whether providers charge nothing for it."""
        return self.path in FREE

    def max_cost_usd(self, price: ModelPrice) -> float:
        """Return the most that it can cost; call it before `take`. A token is at least one byte of text."""
        if self.free:
            return 0.0
        inputs = len(self.sent) + OVERHEAD
        if self.from_kept or any(mark in self.sent for mark in _NOT_TEXT):
            inputs = price.most_input or max(inputs, UNKNOWN_INPUT)
        bounds = [bound for bound in (self.limit, price.most_output) if bound]
        outputs = 0 if self.path == "/embeddings" else min(bounds, default=UNKNOWN_OUTPUT) * self.answers
        return price.most(inputs, outputs, for_an_hour=b'"1h"' in self.sent)

    def take(self) -> io.BytesIO:
        """Return the body to send, and drop it here, because the answer may take long."""
        taken, self.sent = io.BytesIO(self.sent), b""
        return taken


def parse_request(provider: Provider, path: str, content: bytes | bytearray) -> ModelRequest:
    """Parse a request's body.

    Raises:
        UnusableRequest: it is not JSON, names no model, or has a field that is not forwarded.
    """
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise UnusableRequest("the body is not JSON") from None
    model = _model(body)
    if refused := first_refused(path, body, frozenset(provider.extra_fields)):
        raise UnusableRequest(
            f"the field `{refused[:MODEL]}` is not forwarded to {provider.name}{path}; "
            "if the provider needs it, add it to `extra_fields` of the provider in `model_providers`"
        )
    _check(body)
    streamed = bool(body.get("stream"))
    added = False
    if streamed and provider.counts_streams and path in {"/chat/completions", "/completions"}:
        options = body.get("stream_options")
        options = options if isinstance(options, dict) else {}
        added = not options.get("include_usage")
        body["stream_options"] = {**options, "include_usage": True}
    try:
        # Written anew, for of a name that stands twice we read the last, and a provider might read the first.
        sent = orjson.dumps(body)
    except orjson.JSONEncodeError:
        raise UnusableRequest("the body is nested too deeply") from None
    return ModelRequest(
        *(path, model, streamed, added),
        limit=max((_whole(body.get(name)) for name in _LIMITS.get(path, ())), default=0),
        answers=_answers(path, body),
        from_kept=isinstance(body.get("prompt"), dict),
        reaches=reaches(model, body),
        unpriced=unpriced(body),
        sent=sent,
    )


def _model(body: object) -> str:
    model = body.get("model") if isinstance(body, dict) else None
    if not isinstance(model, str) or not model:
        raise UnusableRequest("the body names no `model`")
    if len(model) > MODEL or not model.isprintable():
        raise UnusableRequest(f"`model` must be at most {MODEL} printable characters")
    if "@preset/" in model:  # OpenRouter's: the same as `preset`
        raise UnusableRequest("a preset is not passed on: name one `model`")
    return model


def _check(body: Mapping[str, Any]) -> None:
    for name, most in _NUMBERS.items():
        if not isinstance(number := body.get(name), int | None):  # what some read as a number, others do not
            raise UnusableRequest(f"`{name}` must be a whole number")
        if number is not None and number > most:
            raise UnusableRequest(f"`{name}` must be at most {most}")


def _answers(path: str, body: Mapping[str, Any]) -> int:
    prompt = body.get("prompt") if path == "/completions" else None
    prompts = 1
    if isinstance(prompt, list) and not all(isinstance(token, int) for token in prompt):  # else: one, in tokens
        prompts = len(prompt)
    return max(_whole(body.get("n")), _whole(body.get("best_of")), 1) * prompts


def _whole(found: object) -> int:
    return found if isinstance(found, int) and found > 0 else 0
