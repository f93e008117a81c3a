"""What spans state by the attributes of GenAI and OpenInference: calls, messages, usage and errors."""

from __future__ import annotations

import json
from typing import Any, Mapping

from .model_usage import add_call, usage_of
from .steps import warn_of_component

MODEL, TOOL, AGENT, CHAIN = "model", "tool", "agent", "chain"
OPERATIONS = {
    **dict.fromkeys(("chat", "text_completion", "generate_content", "embeddings"), MODEL),
    "execute_tool": TOOL,
    "invoke_agent": AGENT,
}
OPENINFERENCE_KINDS = {"LLM": MODEL, "TOOL": TOOL, "AGENT": AGENT, "CHAIN": CHAIN}
SYSTEM_ROLES = ("system", "developer")
CALL_TYPES = ("tool_call", "tool_use")
TEXT_TYPES = ("text", "input_text", "output_text")
TOKENS = {  # the names of counts, in the order in which they are looked for
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "cached_input_tokens": ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_write.input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
}
SHORTEST_TEXT = 8
"""Characters of a component's text by which a system message is recognised; a shorter one may stand there by chance."""

LONGEST_MODEL = 256
"""Characters of a model's name in the contract."""


def kind_of(attributes: dict[str, Any]) -> str | None:
    """Return `MODEL`, `TOOL`, `AGENT` or `CHAIN`; None for a span of anything else."""
    operation = attributes.get("gen_ai.operation.name")
    kind = OPERATIONS.get(str(operation))
    kind = kind or OPENINFERENCE_KINDS.get(str(attributes.get("openinference.span.kind")).upper())
    return MODEL if kind is None and operation is None and "gen_ai.system" in attributes else kind


def component_of(
    name: str, attributes: dict[str, Any], kind: str, messages: list[dict[str, Any]], candidate: Mapping[str, str]
) -> str | None:
    """Return the component that a span belongs to: stated, or known by its name, its agent or its system message."""
    given = attributes.get("evolverpc.component")
    if isinstance(given, str):
        warn_of_component(given, candidate)
        return given
    if name in candidate:
        return name
    if kind == TOOL:
        return None  # it may state the agent that called it
    agent = attributes.get("gen_ai.agent.name")
    if agent in candidate:
        return str(agent)
    system = "\n".join(str(each.get("content")) for each in messages if each.get("role") in SYSTEM_ROLES)
    texts = {each: text.strip() for each, text in candidate.items()}
    found = [each for each, text in texts.items() if len(text) >= SHORTEST_TEXT and text in system]
    return max(found, key=lambda each: len(texts[each]), default=None)


def inputs_of(attributes: dict[str, Any], kind: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the messages of a call, or its arguments."""
    asked = [each for each in messages if each["role"] not in SYSTEM_ROLES]
    if asked or (messages and kind == MODEL):  # an agent may state its instructions alone
        return {"messages": messages}
    given = _json(first_of(attributes, "gen_ai.tool.call.arguments", "input.value"))
    if given is None:
        return {}
    return given if isinstance(given, dict) else {"input": given}


def outputs_of(attributes: dict[str, Any], events: Any, kind: str) -> Any:
    """Return the answer of a call: the text or object of a single one, else the messages."""
    given = [] if kind == TOOL else _output_messages(attributes, events)
    messages = [_message(_answer(each) if kind == AGENT else each, "assistant") for each in given]
    if not messages:
        result = attributes.get("gen_ai.tool.call.result")
        if isinstance(result, str) and len(result) > 1 and result[0] == result[-1] == '"':
            result = _from_json(result)
        return _json(attributes.get("output.value") if result is None else result)
    only = messages[0]
    return only["content"] if len(messages) == 1 and "tool_calls" not in only else messages


def usage_of_span(attributes: dict[str, Any], model: Any) -> dict[str, Any]:
    """Return the contract's `Usage` of one model call."""
    counts = {name: first_of(attributes, *names) for name, names in TOKENS.items()}
    taken = {name: count for name, count in counts.items() if type(count) is int and count >= 0}
    cost = first_of(attributes, "gen_ai.usage.cost", "llm.cost.total")
    usage = {"cost_usd": cost} if type(cost) in (int, float) and 0 <= cost < float("inf") else {}
    if isinstance(model, str) and 0 < len(model) <= LONGEST_MODEL:
        models: dict[str, dict[str, Any]] = {}
        add_call(models, model, taken)
        return {**usage_of(models), **usage}
    sums = {name: count for name, count in taken.items() if name in ("input_tokens", "output_tokens")}
    return {"calls": 1, **sums, **usage}


def error_of(span: Any, attributes: dict[str, Any]) -> dict[str, str] | None:
    """Return the error of a span; None if it has none."""
    raised = [dict(event.attributes or {}) for event in span.events if event.name == "exception"]
    status = span.status.status_code.name
    if status == "OK" or (status == "UNSET" and not raised):
        return None
    exception = raised[-1] if raised else {}
    kind = str(exception.get("exception.type") or attributes.get("error.type") or "error").rpartition(".")[2]
    return {"type": kind, "message": str(exception.get("exception.message") or span.status.description or kind)}


def input_messages(attributes: dict[str, Any], events: Any) -> list[dict[str, Any]]:
    """Return the messages that a model got, those of the system first."""
    given = _json(attributes.get("gen_ai.system_instructions"))
    instructions = [] if not given else [{"role": "system", "parts": given} if isinstance(given, list) else given]
    prompt = _json(attributes.get("llm.invocation_parameters"))
    if isinstance(prompt, dict):
        system = prompt.get("system")
        instructions += [each for each in (system if isinstance(system, list) else [system]) if each]
    found = _json(attributes.get("gen_ai.input.messages"))
    if found is None and isinstance(prompt, dict):
        asked = first_of(prompt, "messages", "prompt")
        found = asked if asked is None or isinstance(asked, list) else [asked]
    if not isinstance(found, list):
        found = _listed(attributes, "gen_ai.prompt.") or _listed(attributes, "llm.input_messages.")
    if not found:
        names = {"gen_ai.%s.message" % role: role for role in (*SYSTEM_ROLES, "user", "assistant", "tool")}
        found = [{"role": names[each.name], **(each.attributes or {})} for each in events if each.name in names]
    return [_message(each, "system") for each in instructions] + [_message(each, "user") for each in found]


def _output_messages(attributes: dict[str, Any], events: Any) -> list[Any]:
    found = _json(attributes.get("gen_ai.output.messages"))
    if not isinstance(found, list):
        found = _listed(attributes, "gen_ai.completion.") or _listed(attributes, "llm.output_messages.")
    if not found:
        found = [dict(each.attributes or {}) for each in events if each.name == "gen_ai.choice"]
    return found


def _answer(message: Any) -> Any:
    """Return an agent's message without the calls of tools, which are steps within the agent's, if it has an answer."""
    parts = message.get("parts") if isinstance(message, dict) else None
    texts = [part for part in _list(parts) if _type(part) == "text"]
    return {**message, "parts": texts} if texts else message


def _message(given: Any, role: str) -> dict[str, Any]:
    """Return `{"role", "content"}`, with `tool_calls` if there are any, of a message of any convention."""
    if isinstance(given, dict):
        given = _json(given.get("message", given))  # OpenInference's, and that of a `gen_ai.choice`
    if not isinstance(given, dict):
        return {"role": role, "content": given}
    parts = _json(first_of(given, "parts", "contents", "content", "text"))
    calls = [_tool_call(each) for each in _list(_json(given.get("tool_calls")))]
    if isinstance(parts, list):
        calls += [_tool_call(each) for each in parts if _type(each) in CALL_TYPES]
        parts = _content([each for each in parts if _type(each) not in CALL_TYPES])
    message = {"role": str(given.get("role") or role), "content": parts}
    return {**message, "tool_calls": calls} if calls else message


def _content(parts: list[Any]) -> Any:
    """Return the text of parts; if they hold other than text, such as images, the list of them."""
    contents = []
    for part in parts:
        inner = part.get("message_content", part) if isinstance(part, dict) else part
        kind = _type(inner)
        if kind in TEXT_TYPES:
            contents.append(inner.get("content", inner.get("text")))
        elif kind == "tool_call_response":
            contents.append(inner.get("response", inner.get("result")))
        else:
            contents.append(inner)
    if not contents:
        return None
    return "\n".join(contents) if all(isinstance(each, str) for each in contents) else contents


def _tool_call(given: Any) -> Any:
    """Return `{"name", "arguments"}` of a tool call of any convention."""
    call = given.get("tool_call", given) if isinstance(given, dict) else given
    if not isinstance(call, dict):
        return call
    function = call.get("function")
    called = function if isinstance(function, dict) else call
    return {"name": called.get("name"), "arguments": _json(first_of(called, "arguments", "input"))}


def _listed(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """Return the list whose parts stand in attributes such as `PREFIX0.role`; numbers in names are places in lists."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            *path, last = name[len(prefix) :].split(".")
            node = tree
            for part in path:
                inner = node.setdefault(part, {})
                node = inner if isinstance(inner, dict) else node
            node[last] = value
    return _list(_with_lists(tree))


def _with_lists(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if tree and all(name.isdecimal() for name in tree):
        return [_with_lists(tree[name]) for name in sorted(tree, key=int)]
    return {name: _with_lists(part) for name, part in tree.items()}


def _type(part: Any) -> Any:
    return part.get("type") if isinstance(part, dict) else None


def first_of(attributes: dict[str, Any], *names: str) -> Any:
    """Return the value of the first attribute that is there; None if none is."""
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _json(value: Any) -> Any:
    """Return the object or list that a text holds as JSON; any other text, also of a number, is a text."""
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    return _from_json(value)


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
