"""The metric of a DSPy program: a function of one of several forms, and what it returns."""

from __future__ import annotations

import inspect
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
        self._takes = _parameter_count(function, name)

    def __call__(
        self, example: Any, prediction: Any, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None
    ) -> Any:
        """Return the function's result: a number, or a `dspy.Prediction` with score, feedback and objective scores."""
        return self._function(*(example, prediction, trace, pred_name, pred_trace)[: self._takes])


def read_metric(value: Any, prediction: type) -> results.Score:
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


def _parameter_count(function: Any, name: str) -> int:
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
