"""What a request asks of a model, read once: what is sent on is what was read, written anew."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from sandbox_runtime.gateway.prices import Price
from sandbox_runtime.gateway.providers import FREE, Provider

OVERHEAD = 1_000
"""Tokens that a provider adds of itself: roles, and what it tells a model of tools."""

UNKNOWN_INPUT = 200_000
"""Tokens of what is not text, or is kept by the provider, where the model's bound is not known."""

UNKNOWN_OUTPUT = 32_768
"""Tokens of an answer whose length neither the request nor the model's price bounds."""

_NOT_TEXT = (b'"image', b'"input_', b'"file', b'"document', b'"audio', b'"previous_response_id', b'"conversation"')
_LIMITS = {
    "/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/completions": ("max_tokens",),
    "/responses": ("max_output_tokens",),
    "/messages": ("max_tokens",),
}
_NUMBERS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "n", "best_of")

_SEARCHES = re.compile(r":online$|-search-|deep-research")

# Tuples: what is looked for in them is the sandbox's, and may be of any type.
_USUAL_TIERS = (None, "auto", "default", "flex", "standard", "standard_only")
_FUNCTIONS = (None, "function", "custom", "local_shell", "apply_patch")
_CLIENTS_TOOLS = ("bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_")


class NotAsked(Exception):
    """The request is not one that a provider could answer; its text says why."""


@dataclass(frozen=True)
class Ask:
    """One request. `path`: below `/v1`. `sent`: the body as it goes out.

    `usage_added`: the gateway asked for the usage of the stream, which the sandbox did not: it is not to see it.
    """

    path: str
    model: str
    streamed: bool
    usage_added: bool
    body: dict[str, Any] = field(repr=False)
    sent: bytes = field(repr=False)

    @property
    def free(self) -> bool:
        """Whether providers ask nothing for it."""
        return self.path in FREE

    def most_usd(self, price: Price) -> float:
        """The most it can cost. A token is never less than a byte of text."""
        if self.free:
            return 0.0
        inputs = len(self.sent) + OVERHEAD
        if any(mark in self.sent for mark in _NOT_TEXT) or isinstance(self.body.get("prompt"), dict):
            inputs = price.most_input or max(inputs, UNKNOWN_INPUT)
        outputs = 0 if self.path == "/embeddings" else self._most_output(price) * self._answers()
        return price.most(inputs, outputs, for_an_hour=b'"1h"' in self.sent)

    def _most_output(self, price: Price) -> int:
        asked = [limit for name in _LIMITS.get(self.path, ()) if (limit := _whole(self.body.get(name)))]
        bounds = [bound for bound in (max(asked, default=None), price.most_output) if bound]
        return min(bounds, default=UNKNOWN_OUTPUT)

    def _answers(self) -> int:
        prompt = self.body.get("prompt") if self.path == "/completions" else None
        prompts = len(prompt) if isinstance(prompt, list) else 1
        return max(_whole(self.body.get("n")), _whole(self.body.get("best_of")), 1) * max(prompts, 1)

    def unpriced(self) -> str | None:
        """What it asks for that the price per token does not tell of; None where there is nothing."""
        if self.body.get("service_tier") not in _USUAL_TIERS or self.body.get("speed") not in (None, "standard"):
            return "a dearer service tier"
        if self.body.get("modalities") not in (None, ["text"]):
            return "an answer that is not text"
        if self.body.get("background"):
            return "an answer in the background"
        if self.body.get("inference_geo"):
            return "a choice of where the model runs"
        return self._hosted()

    def reaches(self) -> str | None:
        """What the provider would reach for the sandbox: hosts that its egress knows nothing of; None: nothing."""
        if _SEARCHES.search(self.model):
            return "a model that searches by itself"
        for block in _blocks([self.body.get("messages"), self.body.get("input"), self.body.get("system")]):
            if any(isinstance(url, str) and not url.startswith("data:") for url in _urls(block)):
                return "a file by its URL"
        return self._hosted()

    def _hosted(self) -> str | None:
        """What the provider would do besides answering, at a price of its own."""
        for name in ("mcp_servers", "web_search_options", "plugins", "container"):
            if self.body.get(name):
                return name
        tools = self.body.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            kind = tool.get("type") if isinstance(tool, dict) else None
            if kind not in _FUNCTIONS and not str(kind).startswith(_CLIENTS_TOOLS):
                return f"the tool {kind}"
        return None


def ask(provider: Provider, path: str, content: bytes) -> Ask:
    """Read a request's body.

    Raises:
        NotAsked: it is not JSON, or names no model.
    """
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise NotAsked("the body is not JSON") from None
    model = body.get("model") if isinstance(body, dict) else None
    if not isinstance(model, str) or not model:
        raise NotAsked("the body names no `model`")
    if "models" in body:  # OpenRouter's others to fall back to
        raise NotAsked("`models` is not passed on: name one `model`")
    for name in _NUMBERS:
        if not isinstance(body.get(name), int | None):  # what some providers read as a number, others do not
            raise NotAsked(f"`{name}` must be a whole number")
    streamed = bool(body.get("stream"))
    added = False
    if streamed and provider.counts_streams and path in {"/chat/completions", "/completions"}:
        options = body.get("stream_options")
        options = options if isinstance(options, dict) else {}
        added = not options.get("include_usage")
        body["stream_options"] = {**options, "include_usage": True}
    # Written anew, for of a name that stands twice we read the last, and a provider might read the first.
    return Ask(path, model, streamed, added, body, orjson.dumps(body))


def _blocks(lists: list[Any]) -> Iterator[dict[str, Any]]:
    """Every part of the conversation, those inside of messages and of tools' results included."""
    while lists:
        found = lists.pop()
        for part in found if isinstance(found, list) else ():
            if isinstance(part, dict):
                yield part
                lists += [part.get("content"), part.get("output")]


def _urls(block: dict[str, Any]) -> Iterator[Any]:
    kind = block.get("type")
    if kind in ("image_url", "input_image", "computer_screenshot"):
        image = block.get("image_url")
        yield image.get("url") if isinstance(image, dict) else image
    elif kind == "input_file":
        yield block.get("file_url")
    elif kind in ("image", "document") and isinstance(source := block.get("source"), dict):
        yield source.get("url")


def _whole(found: object) -> int:
    return found if isinstance(found, int) and found > 0 else 0
