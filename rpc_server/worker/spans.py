"""Steps from spans: what instrumentations record while an example runs."""

from __future__ import annotations

import contextvars
import functools
import importlib
import importlib.util
import random
import sys
import threading
from typing import Any, Callable, Mapping

from .span_attributes import (
    CHAIN,
    MODEL,
    component_of,
    error_of,
    first_of,
    input_messages,
    inputs_of,
    kind_of,
    outputs_of,
    usage_of_span,
)
from .steps import Step, Trace, warn

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
