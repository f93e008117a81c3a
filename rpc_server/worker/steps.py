"""Steps of an example's run: which component did what, what went into it and what came out."""

from __future__ import annotations

import contextvars
import difflib
import inspect
import sys
from time import monotonic  # user code may replace it in its module
from types import TracebackType
from typing import Any, Awaitable, Callable, Iterable, Mapping

from . import json_values
from .errors import describe
from .model_apis import join_usage

PARSE_FAILURE = "parse_failure"
_UNFINISHED = {"type": "unfinished", "message": "the step did not end before its example"}
_VALUES = ("inputs", "outputs", "usage")
_LEAVES = frozenset((str, int, float, bool, type(None)))
_DEEPEST = 50
"""Steps within one another; a step within the deepest is recorded beside it."""

_current: contextvars.ContextVar[Step | None] = contextvars.ContextVar("step", default=None)
_warned: set[str] = set()


class ParseFailure(Exception):
    """A model's answer does not have the structure that was expected."""

    def __init__(self, raw: str, expected: str, message: str) -> None:
        super().__init__(message)
        self.raw = raw
        self.expected = expected
        self.is_recorded = False


class Step(dict):  # type: ignore[type-arg]  # Python 3.8 has no `dict[str, Any]` as a base
    """One step as the contract has it, and a context manager that times it; set `outputs` and `usage` in its block."""

    _trace: Trace | None = None
    _around: Step | None = None
    _before: Step | None = None
    _depth = 0
    _started = 0.0
    _ended = False
    is_settled = True
    _takes_outputs = False
    _takes_usage = False

    def settle(self, candidate: Mapping[str, str], around: tuple[Step, ...]) -> bool:  # noqa: ARG002  # of spans
        """Read the values of a step that is not written by the program; return whether it is a step of its own."""
        return True

    def take(self, inner: Step) -> None:
        """Take inputs, outputs and usage that are missing here from a step within this one that stands for the same."""
        if not self.get("inputs"):
            self["inputs"] = inner.get("inputs")
        if (self._takes_outputs or self.get("outputs") is None) and inner.get("outputs") is not None:
            self["outputs"] = inner["outputs"]
            self._takes_outputs = True  # until the last of several
        if (self._takes_usage or not self.get("usage")) and inner.get("usage"):
            self["usage"] = join_usage(self.get("usage"), inner["usage"])
            self._takes_usage = True

    @property
    def outputs(self) -> Any:
        """What came out of the step: any JSON value."""
        return self["outputs"]

    @outputs.setter
    def outputs(self, value: Any) -> None:
        self["outputs"] = _copied(value)  # the program may change it later

    @property
    def usage(self) -> Any:
        """What the step cost: the contract's `Usage`."""
        return self.get("usage")

    @usage.setter
    def usage(self, value: Any) -> None:
        self["usage"] = value

    def __enter__(self) -> Step:
        self._before = _current.get()
        _current.set(self)
        self._started = monotonic()
        self._ended = False  # an awaitable result is not complete when the call returns it
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        self["seconds"] = round(max(0.0, monotonic() - self._started), 6)
        self._ended = True
        _current.set(self._before)
        if problem is not None:
            self._fail(problem)

    def _fail(self, problem: BaseException) -> None:
        error = describe(problem)
        failure: Any = problem
        if type(problem).__name__ == ParseFailure.__name__ and not getattr(problem, "is_recorded", True):
            failure.is_recorded = True  # by this step, and not by the steps around it
            error["type"] = PARSE_FAILURE
            self.update(raw=str(failure.raw), expected=str(failure.expected))
        self["error"] = {"type": error["type"], "message": error["message"]}

    async def _awaited(self, awaitable: Awaitable[Any]) -> Any:
        with self:
            result = await awaitable
            self.outputs = result
        return result


class _UnrecordedStep:
    """Stands for a step of an example whose trajectory is not wanted."""

    __slots__ = ("outputs", "usage")

    def __enter__(self) -> _UnrecordedStep:
        return self

    def __exit__(self, *_: object) -> None:
        """Record nothing."""


class Trace(list):  # type: ignore[type-arg]  # as above
    """What a program gets as `trace`: a recorder of steps, and a list for entries of its own.

    Safe to use from threads and async code. A step belongs to the step around it in the same thread or task.
    `is_wanted`: False if nothing will read the steps; none is recorded then.
    """

    def __init__(self, candidate: Mapping[str, str], *, is_wanted: bool) -> None:
        super().__init__()
        self.is_wanted = is_wanted
        self.steps: list[Step] = []
        self.surrounding: Callable[[], Step | None] = lambda: None  # the step that is not of the program's own
        self._candidate = dict(candidate)
        self._is_settled = True
        self._ended = False

    def step(self, component: str, function: Callable[..., Any] | None = None, /, **inputs: Any) -> Any:
        """Return `function(**inputs)`, run as a step of the component; awaitable if the function is async.

        Without a function, return the step, for a `with` block. `inputs`: what goes into it, by name.
        """
        if self.is_wanted:
            warn_of_component(component, self._candidate)
        return self._run({"component": component}, function, inputs)

    def tool(self, name: str, function: Callable[..., Any] | None = None, /, **inputs: Any) -> Any:
        """As `step`, for a step without a component, such as the call of a tool."""
        return self._run({"name": name}, function, inputs)

    def parse_failure(self, raw: str, expected: str, message: str = "the answer could not be parsed") -> ParseFailure:
        """Return the exception to raise if a model's answer cannot be parsed.

        `raw`: the answer. `expected`: the structure that it should have, as text for the reflection model.
        """
        return ParseFailure(raw, expected, message)

    def end(self) -> None:
        """Record nothing from now on: the example has ended."""
        self._ended = True
        self.settle()
        for step in flattened(self.steps):
            if not step._ended:
                step.setdefault("error", _UNFINISHED)

    def trajectory(self) -> Any:
        """Return the steps, with the program's own entries as `trace` if there are any; without steps, the entries."""
        if not self.steps:
            return list(self)
        return {"steps": self.steps, "trace": list(self)} if self else {"steps": self.steps}

    def text(self) -> str:
        """Return the trajectory as JSON; a step's value that is not JSON is replaced by `{"type", "repr"}`.

        Raises:
            json_values.NotJsonError: an entry of the program's own is not JSON.
        """
        trajectory = self.trajectory()
        try:
            return json_values.readable_text(trajectory, "trace")
        except json_values.NotJsonError:
            if not self.steps:
                raise
        for step in flattened(self.steps):
            for name in _VALUES:
                if name in step:
                    step[name] = _as_json(step[name])
        return json_values.readable_text(trajectory, "trace")

    def add(self, step: Step, around: Step | None) -> None:
        """Add a step within the innermost of two: the given step and the program's own that is running here."""
        if self._ended:
            return
        own = _current.get()
        if own is None or own._ended or own._trace is not self:
            own = None
        if around is None or (own is not None and own._depth > around._depth):
            around = own
        if around is not None and around._depth == _DEEPEST:
            around = around._around
        step._trace = self
        self._is_settled = self._is_settled and step.is_settled
        if around is None:
            self.steps.append(step)
        else:
            step._around, step._depth = around, around._depth + 1
            around.setdefault("steps", []).append(step)

    def settle(self) -> None:
        """Read the steps that are not written by the program; what runs within one that is none takes its place."""
        if not self._is_settled:
            self.steps = self._settled(self.steps, ())
            self._is_settled = True

    def _settled(self, steps: list[Step], around: tuple[Step, ...]) -> list[Step]:
        settled = []
        for step in steps:
            is_own = step.settle(self._candidate, around)
            inner = self._settled(step.get("steps", []), (*around, step) if is_own else around)
            if not is_own:
                settled += inner
                continue
            if "steps" in step:
                del step["steps"]
            if inner:
                step["steps"] = inner
            settled.append(step)
        return settled

    def _run(self, title: dict[str, str], function: Callable[..., Any] | None, inputs: dict[str, Any]) -> Any:
        if not self.is_wanted:
            return _UnrecordedStep() if function is None else function(**inputs)
        step = self._begin(Step(**title, inputs=inputs, outputs=None))
        if function is None:
            return step
        with step:
            result = function(**inputs)
            if not inspect.isawaitable(result):
                step.outputs = result
                return result
        return step._awaited(result)

    def _begin(self, step: Step) -> Step:
        if self._ended:
            warn("a step was started after its example had ended; it is not recorded")
            return step
        step["inputs"] = _copied(step["inputs"])  # as outputs are
        self.add(step, self.surrounding())
        return step


def flattened(steps: Iterable[Any]) -> list[Any]:
    """Return all steps, nested ones after the step that they ran in."""
    found = []
    for step in steps:
        if isinstance(step, dict):  # a trajectory of a program's own may hold anything
            found.append(step)
            if isinstance(step.get("steps"), list):
                found += flattened(step["steps"])
    return found


def warn_of_component(component: str, candidate: Iterable[str]) -> None:
    """Report a step of a component that does not exist."""
    if component not in candidate:
        warn("a step is of component %r: %s" % (component, _unknown(component, candidate)))


def warn_of_feedback(feedback: dict[str, str], components: Iterable[str], steps: Iterable[Any]) -> None:
    """Report feedback for a component that does not exist, or that ran no step although others did."""
    run = {step.get("component") for step in flattened(steps)}
    for name in feedback:
        if name not in components:
            warn("score() returned feedback for %r: %s" % (name, _unknown(name, components)))
        elif run and name not in run:
            warn("score() returned feedback for %r, which ran no step in this example" % name)


def warn_of_score(component: str) -> None:
    """Report that a component's own score differs from the example's, which is the one that counts."""
    warn(
        "score() returned another score for %r than for the whole example: the score of the example counts, and "
        "feedback is all that is used of a component's own" % component
    )


def _unknown(component: str, components: Iterable[str]) -> str:
    near = difflib.get_close_matches(component, list(components), 1)
    meant = "; did you mean %r?" % near[0] if near else ""
    return "the candidate has no such component, it has %s%s" % (", ".join(sorted(components)), meant)


def _copied(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """Return a copy of a value's lists and dicts, but for what contains itself or is nested too deep for JSON."""
    if type(value) in _LEAVES or not isinstance(value, (dict, list, tuple)):
        return value
    if within and (len(within) > json_values.MAX_DEPTH or any(value is each for each in within)):
        return value
    inside = (*within, value)
    if isinstance(value, dict):
        return {name: part if type(part) in _LEAVES else _copied(part, inside) for name, part in value.items()}
    return [part if type(part) in _LEAVES else _copied(part, inside) for part in value]


def _as_json(value: Any) -> Any:
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: json_values.json_or_repr(part) for name, part in value.items()}
    return json_values.json_or_repr(value)


def warn(message: str) -> None:
    """Write a message to the log, once per process."""
    if message not in _warned:
        _warned.add(message)
        sys.stderr.write("warning: %s\n" % message)
