"""Traces of a DSPy program: which predictor made a call, the feedback on it, steps as JSON."""

from __future__ import annotations

from typing import Any, Mapping

from .dspy_metric import Metric
from .encode import json_form
from .steps import PARSE_FAILURE

KEPT = "kept"
"""The field of a trajectory in JSON that names what is kept of it here."""

_NAME = "_evolverpc_predictor"
"""The attribute of a predictor that has its name, also in copies of it that the program makes."""


def mark(program: Any) -> Any:
    """Return the program, whose predictors know their names; frozen parts, which are no components, have none."""
    for name, part in program.named_predictors():
        setattr(part, _NAME, name)
    return program


def feedback_on(metric: Metric, name: str, predictor: Any) -> Any:
    """Return the function that DSPy's adapter asks for the feedback on a call of the predictor, as `dspy.GEPA` does."""

    def feedback(
        predictor_output: Any, predictor_inputs: Any, module_inputs: Any, module_outputs: Any, captured_trace: Any
    ) -> dict[str, Any]:
        own = [(predictor, predictor_inputs, predictor_output)]
        returned = metric(module_inputs, module_outputs, captured_trace, name, own)
        score = returned["score"] if hasattr(returned, "score") else returned
        has_text = hasattr(returned, "feedback")
        text = returned["feedback"] if has_text else None
        if text is None:
            text = "This trajectory got a score of %s." % (score if has_text else returned,)
        return {"score": score, "feedback": text}

    return feedback


def as_json(trajectory: dict[str, Any], problem: BaseException | None, ref: str) -> dict[str, Any]:
    """Return the steps of a trajectory as the contract has them; `ref`: names what is kept here.

    `problem`: why the last answer did not parse; None if all did.
    """
    steps = [_step(*call) for call in trajectory["trace"]]
    if problem is not None and steps:
        raw, error = trajectory["prediction"].completion_text, {"type": PARSE_FAILURE, "message": str(problem)}
        steps[-1].update(outputs=None, raw=raw, error=error)
    return {"steps": steps, KEPT: ref}


def _step(predictor: Any, inputs: Mapping[str, Any], outputs: Any) -> dict[str, Any]:
    name = getattr(predictor, _NAME, None)
    whose = {"component": name} if name else {"name": type(predictor).__name__}
    return {**whose, "inputs": json_form(dict(inputs)), "outputs": json_form(outputs)}
