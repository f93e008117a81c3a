"""Scores, results of examples and reflective records as JSON; what cannot be written fails only its own example."""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib
import math
import re
import sys
from typing import Any, NamedTuple

from . import json_values
from .errors import InvalidResult, ModelUnavailable, TimeLimit, describe, user_traceback
from .infrastructure_failures import classify, evidence_of
from .json_values import NotJsonError, readable_text, to_text
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


REFERENCE = "$image"
MAX_BYTES = 5 * 2**20
_DEEPEST = 200
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,(.*)", re.DOTALL)


def dataset_members(dataset: Any) -> str:
    """Return `dataset`, and `images` if there are any, as members of a result.

    `dataset` has `{"$image": id}` in place of each `gepa.Image`, and `images` these by id, each once.

    Raises:
        NotJsonError: an image cannot be read, exceeds `MAX_BYTES` or is a URL; the message names its place.
    """
    images: dict[str, dict[str, str]] = {}
    module = sys.modules.get("gepa.image")  # a program that has not imported it has made no image
    if module is None:
        return '"dataset":%s' % readable_text(dataset, "dataset")
    kind = module.Image

    def replaced(value: Any, path: str, depth: int) -> Any:
        if isinstance(value, kind):
            content = _image_content(value, path)
            digest = hashlib.sha256((content["media_type"] + content["base64"]).encode()).hexdigest()[:32]
            images[digest] = content
            return {REFERENCE: digest}
        if depth > _DEEPEST:
            return value  # the encoder reports it
        if isinstance(value, dict):
            return {key: replaced(part, "%s.%s" % (path, key), depth + 1) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [replaced(part, "%s[%d]" % (path, at), depth + 1) for at, part in enumerate(value)]
        return value

    made = replaced(dataset, "dataset", 0)
    text = '"dataset":%s' % readable_text(made if images else dataset, "dataset")
    return '%s,"images":%s' % (text, to_text(images, "images")) if images else text


def put_back(value: Any, images: dict[str, dict[str, str]]) -> Any:
    """Replace each known `{"$image": id}` by a `gepa.Image`."""
    if not images:
        return value
    if isinstance(value, dict):
        content = images.get(value[REFERENCE]) if set(value) == {REFERENCE} else None
        if content is not None:
            image = importlib.import_module("gepa.image").Image
            return image(base64_data=content["base64"], media_type=content["media_type"])
        return {key: put_back(part, images) for key, part in value.items()}
    if isinstance(value, list):
        return [put_back(part, images) for part in value]
    return value


def _image_content(image: Any, path: str) -> dict[str, str]:
    try:
        url = image.to_openai_content_part()["image_url"]["url"]
    except OSError as error:
        raise NotJsonError("%s is an image that cannot be read: %s" % (path, error)) from None
    inline = _DATA_URL.fullmatch(url)
    if inline is None:
        raise NotJsonError(
            "%s is an image at a URL, which the optimizer does not fetch, or of another media type than image/...; "
            "give the image itself, as `path` or `base64_data`" % path
        )
    media_type, text = inline.groups()
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise NotJsonError("%s is an image that is not base64: %s" % (path, error)) from None
    if len(data) > MAX_BYTES:
        raise NotJsonError("%s is an image of more than %d bytes; make it smaller" % (path, MAX_BYTES))
    if not data:
        raise NotJsonError("%s is an empty image" % path)
    return {"media_type": media_type, "base64": text}
