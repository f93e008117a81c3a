"""Parse a model request once; the gateway forwards what it parsed, serialized again."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from evolverpc_common.model_prices import ModelPrice
from sandbox_runtime.gateway.providers import FREE, Provider
from sandbox_runtime.gateway.request_policy import first_refused, reaches, unpriced

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


def parse_request(provider: Provider, path: str, content: bytes) -> ModelRequest:
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
