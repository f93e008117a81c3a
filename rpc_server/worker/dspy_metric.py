"""The user's DSPy metric, and DSPy's reflective records as JSON and as objects."""

from __future__ import annotations

import hashlib
import inspect
import json
import threading
from collections import OrderedDict
from typing import Any

from . import encode, results
from .errors import InvalidResult, ProgramProblem

_FORMS = (
    (5, "(gold, pred, trace, pred_name, pred_trace)"),
    (3, "(example, prediction, trace)"),
    (2, "(example, prediction)"),
)


class Metric:
    """A function of one of the `_FORMS`, called in the longest form that it accepts."""

    def __init__(self, function: Any, name: str) -> None:
        if not callable(function):
            raise ProgramProblem("metric", "%s is a %s, not a function" % (name, encode.dotted(type(function))))
        self._function = function
        self._takes = _count(function, name)

    def __call__(
        self, example: Any, prediction: Any, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None
    ) -> Any:
        """Return the function's result: a number, or a `dspy.Prediction` with score, feedback and objective scores."""
        return self._function(*(example, prediction, trace, pred_name, pred_trace)[: self._takes])


def read(value: Any, prediction: type) -> results.Score:
    """Return the parts of a metric's result; `prediction` is DSPy's class of that name.

    Raises:
        InvalidResult: naming what is wrong.
    """
    if not isinstance(value, prediction):
        return results.Score(results.finite_number(value, "score"), None, None)
    if not hasattr(value, "score"):
        raise InvalidResult("the metric returned a Prediction without `score`")
    feedback = getattr(value, "feedback", None)
    return results.read_score(
        (value.score, None if feedback is None else str(feedback), getattr(value, "objective_scores", None))
    )


def _count(function: Any, name: str) -> int:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a callable written in C may hide its parameters
        raise ProgramProblem("metric", "%s does not show its arguments: wrap it in a function" % name) from None
    for count, _ in _FORMS:
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    forms = ", ".join(form for _, form in reversed(_FORMS))
    raise ProgramProblem("metric", "%s takes %s; a metric takes one of %s" % (name, signature, forms))


_MOST_KEPT = 64
"""Lists of records kept as objects: more than the concurrent proposals of one optimizer."""


class RecordObjects:
    """Lists of records by their JSON form, to restore the objects of a list that the client sends back.

    Images and histories are objects in DSPy's records, and texts in JSON. A list that was evicted, or made by another
    process, stays JSON. Thread-safe.
    """

    def __init__(self) -> None:
        self._objects: OrderedDict[str, list[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def as_json(self, records: list[Any]) -> list[Any]:
        """Return the records as JSON values."""
        shown = [_plain(record) for record in records]
        if shown != records:
            with self._lock:
                self._objects[_records_key(shown)] = records
                while len(self._objects) > _MOST_KEPT:
                    self._objects.popitem(last=False)
        return shown

    def objects_of(self, shown: list[Any]) -> list[Any]:
        """Return the objects of records that `as_json` returned, else the given list."""
        with self._lock:
            return self._objects.get(_records_key(shown), shown)


def _records_key(shown: list[Any]) -> str:
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return a record as JSON; DSPy's own types (images, files) as their text in a prompt."""
    if isinstance(value, dict):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(member) for member in value]
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
