"""Scores and results of examples as JSON; what cannot be written fails only its own example."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from . import json_values
from .errors import InvalidResult, ModelUnavailable, TimeLimit, describe, user_traceback
from .infrastructure_failures import classify, evidence_of
from .network_calls import ExampleCalls
from .steps import PARSE_FAILURE, ParseFailure, Trace, warn_of_score

_KEYS = ("score", "feedback", "objective_scores", "component_feedback")
_COMPONENT_KEYS = {"score", "feedback"}


class Score(NamedTuple):
    """A finite score with its feedback, in all and by component, and objective scores."""

    score: float
    feedback: str | None
    objective_scores: dict[str, float] | None
    component_feedback: dict[str, str] | None = None


def read_score(value: Any) -> Score:
    """Return the parts of what `score()` returned.

    Raises:
        InvalidResult: naming what is wrong.
    """
    if isinstance(value, dict):
        unknown = sorted(str(key) for key in value if key not in _KEYS)
        if unknown:
            raise InvalidResult("score() returned unknown keys %s; it may have %s" % (unknown, ", ".join(_KEYS)))
        if "score" not in value:
            raise InvalidResult("score is missing from the mapping that score() returned")
        return _score_of(*(value.get(key) for key in _KEYS))
    if isinstance(value, tuple):
        if not 1 <= len(value) <= len(_KEYS):
            raise InvalidResult("score() returned a tuple of %d; (number, feedback) is meant" % len(value))
        return _score_of(*value)
    return _score_of(value)


def _score_of(score: Any, feedback: Any = None, objectives: Any = None, by_component: Any = None) -> Score:
    if feedback is not None and not isinstance(feedback, str):
        raise InvalidResult("feedback is a %s; it must be text" % json_values.dotted(type(feedback)))
    if objectives is not None and not isinstance(objectives, dict):
        raise InvalidResult("objective_scores is a %s; it must be a mapping" % json_values.dotted(type(objectives)))
    number = finite_number(score, "score")
    return Score(
        number,
        feedback,
        {str(name): finite_number(part, "objective_scores.%s" % name) for name, part in objectives.items()}
        if objectives
        else None,
        _component_feedback(by_component, number),
    )


def _component_feedback(given: Any, score: float) -> dict[str, str] | None:
    """Return the texts of feedback by component, each given as text or as `{"feedback", "score"}`."""
    if not given:
        return None
    if not isinstance(given, dict):
        raise InvalidResult("component_feedback is a %s; it must be a mapping" % json_values.dotted(type(given)))
    texts = {}
    for name, feedback in given.items():
        if isinstance(feedback, dict) and "feedback" in feedback and _COMPONENT_KEYS.issuperset(feedback):
            own = feedback.get("score")
            if own is not None and finite_number(own, "component_feedback.%s.score" % name) != score:
                warn_of_score(name)
            feedback = feedback["feedback"]
        if not isinstance(feedback, str):
            raise InvalidResult(
                'component_feedback.%s is a %s; it must be text, or {"feedback": text, "score": number}'
                % (name, json_values.dotted(type(feedback)))
            )
        texts[str(name)] = feedback
    return texts


def finite_number(value: Any, name: str) -> float:
    """Return a finite float from any number, such as numpy's.

    Raises:
        InvalidResult: it is missing, not a number, NaN or infinite.
    """
    if value is None:
        raise InvalidResult("%s is missing (None)" % name)
    if isinstance(value, str):
        raise InvalidResult("%s is a string (%.100r), not a number" % (name, value))
    if not hasattr(type(value), "__float__"):
        raise InvalidResult("%s is a %s, not a number" % (name, json_values.dotted(type(value))))
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidResult("%s is no number: %s" % (name, error)) from None
    if not math.isfinite(result):
        raise InvalidResult("%s is %s" % (name, "NaN" if math.isnan(result) else "infinite"))
    return result


def text(
    status: str,
    *,
    seconds: float,
    score: float | None = None,
    output: Any = None,
    feedback: str | None = None,
    objective_scores: dict[str, float] | None = None,
    component_feedback: dict[str, str] | None = None,
    trajectory: Any = None,
    trajectory_ref: str | None = None,
    usage: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
    metric_calls: int | None = None,
    hosts: dict[str, Any] | None = None,
) -> str:
    """Return an `ExampleResult` as JSON; optional fields that are None are left out.

    Raises:
        json_values.NotJsonError: naming the field and the place in it.
    """
    parts = [
        '{"status":"%s","score":%s' % (status, json_values.to_text(score, "score")),
        '"output":' + json_values.exact_text(output, "output"),
    ]
    optional = (
        ("feedback", feedback),
        ("component_feedback", component_feedback),
        ("objective_scores", objective_scores),
        ("trajectory_ref", trajectory_ref),
        ("usage", usage or None),
        ("error", error),
        ("metric_calls", metric_calls),
        ("hosts", hosts or None),
    )
    parts += ['"%s":%s' % (name, json_values.to_text(value, name)) for name, value in optional if value is not None]
    if trajectory is not None:
        text = (
            trajectory.text() if isinstance(trajectory, Trace) else json_values.readable_text(trajectory, "trajectory")
        )
        parts.append('"trajectory":' + text)
    parts.append('"seconds":%.6f}' % max(0.0, seconds))  # user code may stop the clock or set it back
    return ",".join(parts)


def invalid(message: str, seconds: float, **kept: Any) -> str:
    """Return the failure of a program that returned something else than a result."""
    return text("program_error", seconds=seconds, error={"type": "invalid_result", "message": message}, **kept)


def check_calls(calls: ExampleCalls, *, trusted: bool) -> None:
    """Check that the program did not return in place of a model that failed; `trusted`: it may.

    Raises:
        ModelUnavailable: the last call of a model is open.
    """
    last = None if trusted else calls.open_model_call()
    if last is not None:
        raise ModelUnavailable(
            "the program returned, but its last call of a model failed: %s; if it answers such failures on purpose, "
            "set `trust_results`" % evidence_of(last)
        )
    calls.judged()


def failed(problem: BaseException, calls: ExampleCalls, limit_s: float | None) -> dict[str, Any]:
    """Return `status` and `error` for what was raised in an example that made these calls."""
    kind = type(problem)  # `isinstance` asks for `__class__`, which can be user code
    if issubclass(kind, ModelUnavailable):
        return {"status": "infra_error", "error": {"type": "model_unavailable", "message": str(problem)}}
    if issubclass(kind, (TimeLimit, InvalidResult, json_values.NotJsonError)):
        status, error = _ended(problem, limit_s)
        last = calls.open_model_call()
        if last is not None:
            status, error["message"] = "infra_error", "%s [%s]" % (error["message"], evidence_of(last))
        return {"status": status, "error": error}
    if kind is RuntimeError and problem.__cause__ is not None and issubclass(type(problem.__cause__), StopIteration):
        problem = problem.__cause__  # it cannot pass through a coroutine: the interpreter wraps it
    classification = classify(problem, calls)
    error = describe(problem, classification.evidence)
    if issubclass(kind, ParseFailure):
        error["type"] = PARSE_FAILURE
    return {
        "status": "infra_error" if classification.transient else "program_error",
        "error": error,
    }


def _ended(problem: BaseException, limit_s: float | None) -> tuple[str, dict[str, Any]]:
    """Return status and error of an example that reached its time limit, or returned what is no result."""
    if not issubclass(type(problem), TimeLimit):
        return "program_error", {"type": "invalid_result", "message": str(problem)}
    error = {"type": "timeout", "message": "ran longer than %g s" % (limit_s or 0)}
    where = user_traceback(problem)
    return "timeout", {**error, "traceback": where} if where else error
