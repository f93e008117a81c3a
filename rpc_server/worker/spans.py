"""Steps from spans that instrumentations record while an example runs, by the attributes of GenAI and OpenInference."""

from __future__ import annotations

import contextvars
import functools
import importlib
import importlib.util
import json
import random
import sys
import threading
from typing import Any, Callable, Mapping

from .model_apis import add_call, usage_of
from .steps import Step, Trace, warn, warn_of_component

_OF_NO_COMPONENT = "the span %r of a model call is of no component; %s, or set the attribute `evolverpc.component`"
_WITH_MESSAGES = "if it uses one, have its text in the system message as it is"
_WITHOUT_MESSAGES = "it has no messages: make the instrumentation record them"
_STRAY = (
    "the %s is not recorded: it starts in a thread without context while several examples run; copy the context "
    "into the thread, or run one example at once"
)
_random = random.SystemRandom()
_ID_METHODS = {  # the SDK's own draw from `random`, which the program may have seeded
    "generate_span_id": lambda _: _random.randrange(1, 2**64),
    "generate_trace_id": lambda _: _random.randrange(1, 2**128),
}
_current: contextvars.ContextVar[ExampleSpans | None] = contextvars.ContextVar("spans", default=None)
_open: set[ExampleSpans] = set()
_lock = threading.Lock()


class ExampleSpans:
    """The spans of one example while its program runs: a context manager that makes them steps of a trace.

    A span belongs to the example of its context. In a thread of the program's own, which has no such context, it
    belongs to the only open example; if there are several, it is not recorded.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._steps: dict[int, _SpanStep] = {}

    def __enter__(self) -> None:
        watch()
        self._trace.surrounding = self._surrounding
        _current.set(self)
        with _lock:
            _open.add(self)

    def __exit__(self, *_: object) -> None:
        with _lock:
            _open.discard(self)
        _current.set(None)
        self._trace.settle()

    @property
    def is_wanted(self) -> bool:
        """Whether anything will read the steps."""
        return self._trace.is_wanted

    def add(self, span: Any) -> None:
        """Record a span that starts; what it holds is read when the example's program has returned."""
        if self._trace.is_wanted:
            step = self._steps[span.context.span_id] = _SpanStep(span)
            self._trace.add(step, self._steps.get(span.parent.span_id) if span.parent is not None else None)

    def _surrounding(self) -> Step | None:
        """Return the step of the span in which the caller runs."""
        if not self._steps:
            return None
        return self._steps.get(sys.modules["opentelemetry.trace"].get_current_span().get_span_context().span_id)


class _SpanStep(Step):
    """A step whose values are those of a span."""

    is_settled = False
    _is_counted = False
    """Whether a step around it has taken its usage."""

    def __init__(self, span: Any) -> None:
        super().__init__()
        self._span = span

    def settle(self, candidate: Mapping[str, str], around: tuple[Step, ...]) -> bool:
        span = self._span
        attributes = dict(span.attributes or {})
        kind = kind_of(attributes)
        if kind is None:
            return False
        messages = input_messages(attributes, span.events)
        component = component_of(span.name, attributes, kind, messages, candidate)
        model = first_of(attributes, "gen_ai.request.model", "gen_ai.response.model", "llm.model_name")
        if kind == CHAIN and component is None:
            return False  # frameworks have chains for their own parts
        if component is None:
            if kind == MODEL and not any(step.get("component") for step in around):
                warn(_OF_NO_COMPONENT % (span.name, _WITH_MESSAGES if messages else _WITHOUT_MESSAGES))
            self["name"] = str(first_of(attributes, "gen_ai.tool.name", "tool.name") or span.name)
        else:
            self["component"] = component
        self["inputs"] = inputs_of(attributes, kind, messages)
        if kind == MODEL and model:
            self["inputs"]["model"] = model
        self["outputs"] = outputs_of(attributes, span.events, kind)
        if kind == MODEL:
            self["usage"] = usage_of_span(attributes, model)
        error = error_of(span, attributes)
        if error is not None:
            self["error"] = error
        if span.end_time is not None:
            self["seconds"] = round(max(0, span.end_time - span.start_time) / 1e9, 6)
            self._ended = True
        same = [step for step in around if component is not None and step.get("component") == component]
        if same:
            if self._is_within_counted():
                self.pop("usage", None)  # it is a part of that
            self._is_counted = "usage" in self
            same[-1].take(self)
        return not same

    def _is_within_counted(self) -> bool:
        step = self._around
        while step is not None and not getattr(step, "_is_counted", False):
            step = step._around
        return step is not None


def watch() -> None:
    """See the spans of the program's tracer provider, or of one that is set here if an instrumentation has none.

    Does nothing if the program has not imported OpenTelemetry.
    """
    api: Any = sys.modules.get("opentelemetry.trace")
    if not hasattr(api, "get_tracer_provider"):
        return  # not imported, or not yet as a whole
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider):
        provider = _new_provider()
        if provider is None:
            return
        # Not by `set_tracer_provider`, which works once: the program may set its own later.
        api._TRACER_PROVIDER = provider
    provider = getattr(provider, "provider", provider)  # logfire's holds one of the SDK
    processor = getattr(provider, "_active_span_processor", None)
    if processor is None:
        name = type(provider).__name__
        if not isinstance(provider, api.NoOpTracerProvider):
            warn("spans do not become steps: the tracer provider, a %s, is not one of opentelemetry-sdk" % name)
        return
    with _lock:
        if not hasattr(processor, "_evolverpc_watched"):
            processor.on_start = _recorded(processor.on_start)
            processor._evolverpc_watched = True


@functools.lru_cache(maxsize=None)
def _new_provider() -> Any:
    """Return a provider without exporters, whose spans cost little while no example's trajectory is wanted.

    None if the SDK is not installed.
    """
    if importlib.util.find_spec("opentelemetry.sdk") is None:
        return None
    sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
    ids = type("Ids", (importlib.import_module("opentelemetry.sdk.trace.id_generator").IdGenerator,), _ID_METHODS)
    resource = importlib.import_module("opentelemetry.sdk.resources").Resource({})
    sampling: Any = importlib.import_module("opentelemetry.sdk.trace.sampling")
    choice = {True: sampling.ALWAYS_ON, False: sampling.ALWAYS_OFF}
    methods = {
        "should_sample": lambda _, *span: choice[_is_wanted()].should_sample(*span),
        "get_description": lambda _: "of examples whose trajectory is wanted",
    }
    sampler = type("Sampler", (sampling.Sampler,), methods)()
    unlimited = sdk.SpanLimits(max_attributes=sdk.SpanLimits.UNSET, max_events=sdk.SpanLimits.UNSET)
    return sdk.TracerProvider(
        sampler=sampler, resource=resource, id_generator=ids(), span_limits=unlimited, shutdown_on_exit=False
    )


def _is_wanted() -> bool:
    """Report whether a span that starts here may become a step, or be reported as stray."""
    spans = _current.get()
    if spans is not None:
        return spans.is_wanted
    with _lock:
        return any(each.is_wanted for each in _open)


def trace_here(title: str) -> Trace | None:
    """Return the trace of the example that runs here, for a step with this title; None outside of examples."""
    spans, is_stray = _open_here()
    if is_stray:
        warn(_STRAY % f"step {title!r}")
    return None if spans is None else spans._trace


def _open_here() -> tuple[ExampleSpans | None, bool]:
    """Return those of the example that runs here, and whether they cannot be found although one is wanted."""
    spans = _current.get()
    with _lock:
        if spans is None and len(_open) == 1:
            spans = next(iter(_open))
        is_stray = spans is None and any(each.is_wanted for each in _open)
        return (spans if spans in _open else None), is_stray


def _recorded(on_start: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(span: Any, parent_context: Any = None) -> None:
        spans, is_stray = _open_here()
        if is_stray and kind_of(dict(span.attributes or {})) is not None:
            warn(_STRAY % f"span {span.name!r}")
        if spans is not None:
            spans.add(span)
        on_start(span, parent_context=parent_context)

    return recorded


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
    """Return the JSON value of a text; the text if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
