"""What a request asks of a provider besides tokens: hosts that it would reach, and what has a price of its own."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

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
"""Fields of a tool without a type, which is one of the program's own."""

_TEXT_FIELDS = frozenset(
    {
        *("content", "text", "output", "input", "instructions", "refusal", "reasoning", "reasoning_content"),
        *("thinking", "title", "context", "name", "description", "query", "stdout", "stderr"),
    }
)
"""Fields of a conversation whose text a model reads as it stands."""

_NOT_FETCHED = frozenset(
    {"id", "call_id", "item_id", "tool_call_id", "tool_use_id", "annotations", "citations", "arguments"}
)
"""Fields that may look like addresses and are never fetched: ids, the source of a text, a model's call of a tool."""

_REFERENCE = re.compile(r"\s*[a-z][a-z0-9+.-]*:(?!\s)", re.IGNORECASE)
_INLINE = re.compile(r"data:[\w.+-]+/[\w.+-]+(;[\w.+-]+=[\w.+-]+)*;base64,", re.IGNORECASE)


def reaches(model: str, body: Mapping[str, Any]) -> str | None:
    """What the provider would reach for the sandbox: hosts that its egress knows nothing of; None: nothing."""
    if _SEARCHES.search(model):
        return "a model that searches by itself"
    for field, text in _references(body):
        if not _INLINE.match(text):
            return f"a file by its address in `{field}`: send it inline, as data:TYPE;base64,..."
    return _hosted(body)


def unpriced(body: Mapping[str, Any]) -> str | None:
    """What it asks for that the price per token does not cover; None where there is nothing."""
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
    """What the provider would do besides answering, at a price of its own; an empty object asks for it too."""
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
    """Every text of the conversation, with its field, that has the form of an address and is not read as text."""
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
    """Whether a field repeats what a model asked of a tool, or where a text is from: no provider fetches it."""
    if field in _NOT_FETCHED:
        return True
    if kind == "tool_use" or kind.endswith("_call"):
        return field in ("input", "action", "operation")
    return kind == "search_result" and field == "source"
