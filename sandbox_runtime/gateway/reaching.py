"""What a request asks of a provider besides tokens: hosts that it would reach, and what has a price of its own."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_SEARCHES = re.compile(r":online$|-search-|deep-research|(^|/)sonar", re.IGNORECASE)

# Tuples: what is looked for in them is the sandbox's, and may be of any type.
_USUAL_TIERS = (None, "auto", "default", "flex", "standard", "standard_only")
_FUNCTIONS = (None, "function", "custom", "local_shell", "apply_patch")
_CLIENTS_TOOLS = ("bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_")
_TEXT = ("text", "input_text", "output_text")

_SAID = frozenset({"annotations", "citations", "arguments"})
"""What names hosts within a conversation, and is only read: where a text is from, and what a model asked of a tool."""


def reaches(model: str, body: Mapping[str, Any]) -> str | None:
    """What the provider would reach for the sandbox: hosts that its egress knows nothing of; None: nothing."""
    if _SEARCHES.search(model):
        return "a model that searches by itself"
    if any(not url.startswith("data:") for url in _urls(body)):
        return "a file by its URL"
    return _hosted(body)


def unpriced(body: Mapping[str, Any]) -> str | None:
    """What it asks for that the price per token does not tell of; None where there is nothing."""
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
    """What the provider would do besides answering, at a price of its own."""
    for name in ("mcp_servers", "web_search_options", "plugins", "container"):
        if body.get(name):
            return name
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind not in _FUNCTIONS and not str(kind).startswith(_CLIENTS_TOOLS):
            return f"the tool {kind}"
    return None


def _urls(body: Mapping[str, Any]) -> Iterator[str]:
    """Every string of the conversation that stands where files are named, at any depth."""
    left: list[tuple[str, Any]] = [("", body.get(name)) for name in ("messages", "input", "system")]
    prompt = body.get("prompt")
    variables = prompt.get("variables") if isinstance(prompt, dict) else None
    if isinstance(variables, dict):
        left += [("", value) for value in variables.values()]  # their own names mean nothing
    while left:
        name, found = left.pop()
        if isinstance(found, str) and (name in ("url", "file_data") or name.endswith("_url")):
            yield found
        elif isinstance(found, list):
            left += [(name, part) for part in found]
        elif isinstance(found, dict):
            left += [pair for pair in found.items() if not _only_said(found.get("type"), *pair)]


def _only_said(kind: object, name: str, value: object) -> bool:
    if kind in _TEXT and isinstance(value, str):
        return True
    return name in _SAID or (kind == "tool_use" and name == "input")
