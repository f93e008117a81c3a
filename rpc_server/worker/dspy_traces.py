"""Traces of a DSPy program: which predictor made a call, a predictor's own calls for its records, steps as JSON."""

from __future__ import annotations

from typing import Any, Mapping

from .dspy_metric import Metric
from .encode import json_form
from .steps import PARSE_FAILURE

KEPT = "kept"
"""The field of a trajectory in JSON that names what is kept of it here."""

_NAME = "_evolverpc_predictor"
"""The attribute of a predictor that has its name, also in copies of it that the program makes."""


def mark(program: Any, predict: type) -> Any:
    """Return the program, whose predictors know their names; those of frozen parts, which are no components, have none.

    `predict`: DSPy's class of predictors.
    """
    for _, part in program.named_sub_modules(predict):
        setattr(part, _NAME, "")
    for name, part in program.named_predictors():
        setattr(part, _NAME, name)
    return program


class OwnCalls(list):  # type: ignore[type-arg]  # Python 3.8 has no `list[Any]` as a base
    """The calls of one predictor in the trace of a trajectory, in its place for DSPy's adapter."""

    trajectory: dict[str, Any]


def own_calls(trajectory: dict[str, Any], name: str, signatures: Mapping[str, Any]) -> OwnCalls:
    """Return the calls of a predictor in a trajectory; `signatures`: of the candidate's predictors.

    DSPy's adapter compares signatures alone. A predictor that the program makes while it runs has no name: its calls
    are those of the one predictor with its signature.
    """

    def is_own(predictor: Any) -> bool:
        if not predictor.signature.equals(signatures[name]):
            return False
        known = getattr(predictor, _NAME, None)
        return known == name or (
            known is None and sum(predictor.signature.equals(each) for each in signatures.values()) == 1
        )

    own = OwnCalls(call for call in trajectory["trace"] if is_own(call[0]))
    own.trajectory = trajectory
    return own


def feedback_on(metric: Metric, name: str, predictor: Any) -> Any:
    """Return the function that DSPy's adapter asks for the feedback on a call of the predictor.

    The text is the metric's on the predictor. If its score differs from that of the example, which is the one that
    counts, it is the metric's on the example, as far as it gave one. Without a text it is that of `dspy.GEPA`.
    """

    def feedback(
        predictor_output: Any, predictor_inputs: Any, module_inputs: Any, module_outputs: Any, captured_trace: OwnCalls
    ) -> dict[str, Any]:
        trajectory = captured_trace.trajectory
        own = [(predictor, predictor_inputs, predictor_output)]
        returned = metric(module_inputs, module_outputs, trajectory["trace"], name, own)
        counts = returned if _score(returned) == _score(trajectory["score"]) else trajectory["score"]
        text = next((text for text in map(_text, (counts, returned)) if text is not None), None)
        if text is None:
            text = "This trajectory got a score of %s." % (_score(counts) if hasattr(counts, "feedback") else counts,)
        return {"score": _score(returned), "feedback": text}

    return feedback


def _score(returned: Any) -> Any:
    return returned["score"] if hasattr(returned, "score") else returned


def _text(returned: Any) -> Any:
    return returned["feedback"] if hasattr(returned, "feedback") else None


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
