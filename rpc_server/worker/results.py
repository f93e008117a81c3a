"""One example's result as JSON, written piece by piece: what cannot be written is blamed on that example alone."""

from __future__ import annotations

from typing import Any

from . import encode
from .failures import InvalidResult, TimeLimit, describe, user_traceback
from .transient import classify


def text(
    status: str,
    *,
    seconds: float,
    score: float | None = None,
    output: Any = None,
    feedback: str | None = None,
    objective_scores: dict[str, float] | None = None,
    trajectory: Any = None,
    trajectory_ref: str | None = None,
    usage: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
    metric_calls: int | None = None,
) -> str:
    """An `ExampleResult`; optional fields that are None are left out.

    Raises:
        encode.NotJson: naming the field and the place in it.
    """
    parts = [
        '{"status":"%s","score":%s' % (status, encode.to_text(score, "score")),
        '"output":' + encode.exact_text(output, "output"),
    ]
    optional = (
        ("feedback", feedback),
        ("objective_scores", objective_scores),
        ("trajectory_ref", trajectory_ref),
        ("usage", usage or None),
        ("error", error),
        ("metric_calls", metric_calls),
    )
    parts += ['"%s":%s' % (name, encode.to_text(value, name)) for name, value in optional if value is not None]
    if trajectory is not None:
        parts.append('"trajectory":' + encode.exact_text(trajectory, "trajectory"))
    parts.append('"seconds":%.6f}' % max(0.0, seconds))  # user code may stand the clock still, or set it back
    return ",".join(parts)


def invalid(message: str, seconds: float, **kept: Any) -> str:
    """The program answered something that is not a result."""
    return text("program_error", seconds=seconds, error={"type": "invalid_result", "message": message}, **kept)


def failed(problem: BaseException, transient: tuple[str, ...], limit_s: float | None) -> dict[str, Any]:
    """`status` and `error` for what user code raised."""
    kind = type(problem)  # `isinstance` asks for `__class__`, which can be user code
    if issubclass(kind, TimeLimit):
        error = {"type": "timeout", "message": "ran longer than %g s" % (limit_s or 0)}
        where = user_traceback(problem)
        return {"status": "timeout", "error": {**error, "traceback": where} if where else error}
    if issubclass(kind, (InvalidResult, encode.NotJson)):
        return {"status": "program_error", "error": {"type": "invalid_result", "message": str(problem)}}
    if kind is RuntimeError and problem.__cause__ is not None and issubclass(type(problem.__cause__), StopIteration):
        problem = problem.__cause__  # it cannot pass through a coroutine: the interpreter wraps it
    verdict = classify(problem, transient)
    return {
        "status": "infra_error" if verdict.transient else "program_error",
        "error": describe(problem, verdict.evidence),
    }
