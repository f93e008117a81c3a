"""DSPy's own GEPA adapter over a student: the user's metric, typed rows, and one example's run with its trace."""

from __future__ import annotations

import importlib
import inspect
import random
import sys
import typing
from typing import Any

from . import encode, results
from .dspy_student import Student
from .errors import InvalidResult, ProgramProblem
from .model_usage import add_call, tokens_of, usage_of

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


_JSON_TYPES = (str, int, float, bool, type(None), list, dict, Any, object)


class RowTypes:
    """Converts the fields of rows that a predictor's signature declares with a type JSON does not have.

    `dspy.History`, `dspy.Image` (a URL or data URI, or `{"url": ...}`), pydantic models, dates, enums and the like,
    also inside lists and optional types. A field that two predictors declare with different types stays as it is.
    """

    def __init__(self, predictors: typing.Iterable[Any], *, adapter: Any, invalid: type[Exception], image: Any) -> None:
        """`adapter`, `invalid`: pydantic's `TypeAdapter` and `ValidationError`. `image`: `dspy.Image`."""
        self._adapter = adapter
        self._invalid = invalid
        self._image = image
        self._types: dict[str, Any] = {}
        declared: dict[str, list[Any]] = {}
        for predictor in predictors:
            for name, field in predictor.signature.fields.items():
                declared.setdefault(name, []).append(field.annotation)
        for name, (first, *others) in declared.items():
            if all(other == first for other in others) and not _is_json(first) and self._is_readable(first):
                self._types[name] = first

    def convert(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row with its typed fields converted.

        Raises:
            InvalidResult: a value does not fit its type; the message names the field.
        """
        return {name: self._converted(name, value) if name in self._types else value for name, value in row.items()}

    def _converted(self, name: str, value: Any) -> Any:
        declared = self._types[name]
        try:
            return self._adapter(declared).validate_python(self._with_images(declared, value))
        except self._invalid as problem:
            message = "the row's field %r is not a %s: %s" % (name, getattr(declared, "__name__", declared), problem)
            raise InvalidResult(message) from None

    def _with_images(self, declared: Any, value: Any) -> Any:
        """Return texts as the images that they name; pydantic itself reads an image from an object only."""
        if declared is self._image and isinstance(value, str):
            return self._image(url=value)
        inner = typing.get_args(declared)
        if typing.get_origin(declared) is list and inner and isinstance(value, list):
            return [self._with_images(inner[0], item) for item in value]
        if self._image in inner and isinstance(value, str) and str not in inner:
            return self._image(url=value)
        return value

    def _is_readable(self, declared: Any) -> bool:
        try:
            self._adapter(declared)
        except Exception:  # noqa: BLE001  # pydantic has no schema for it: rows are left as they are
            return False
        return True


def _is_json(declared: Any) -> bool:
    origin = typing.get_origin(declared)
    if origin is None:
        return declared in _JSON_TYPES
    if origin is typing.Literal:
        return True
    return all(map(_is_json, typing.get_args(declared)))


_FAILURE_SCORE = 0.0  # only inside trajectories: the optimizer's settings define the score of a failure


class DspyModules:
    """The parts of DSPy in use, imported from the user's environment."""

    def __init__(self) -> None:
        try:
            self._dspy = importlib.import_module("dspy")
        except ModuleNotFoundError as problem:
            if problem.name != "dspy":
                raise
            raise ProgramProblem("import", _advice("DSPy is not installed for %s" % sys.executable)) from None
        self._version: str = getattr(self._dspy, "__version__", "of an unknown version")
        try:
            self._gepa = importlib.import_module("dspy.teleprompt.gepa.gepa_utils")
        except ModuleNotFoundError:
            raise ProgramProblem("import", _advice("DSPy %s has no GEPA adapter" % self._version)) from None
        self._parse_error: Any = importlib.import_module("dspy.utils.exceptions").AdapterParseError
        self.module: Any = self._dspy.Module
        self.prediction: Any = self._dspy.Prediction
        self.example: Any = self._dspy.Example
        self.batch: Any = self._gepa.EvaluationBatch
        self.track_usage: Any = importlib.import_module("dspy.utils.usage_tracker").track_usage

    def row_types(self, student: Student) -> RowTypes:
        """Return the converter of rows to the types of the program's signatures."""
        pydantic = importlib.import_module("pydantic")
        return RowTypes(
            student.predictors.values(),
            adapter=pydantic.TypeAdapter,
            invalid=pydantic.ValidationError,
            image=self._dspy.Image,
        )

    def refuse_flex(self, program: Any) -> None:
        """Refuse a program whose code DSPy would evolve.

        Raises:
            ProgramProblem: naming the part that is a `dspy.Flex`.
        """
        flex = getattr(self._dspy, "Flex", None)
        found = [name for name, part in program.named_parameters() if flex is not None and isinstance(part, flex)]
        if found:
            raise ProgramProblem(
                "program",
                "%r is a dspy.Flex, whose code is not evolved here: use dspy.Predict in its place, and evolve code "
                "with --allow-mutations" % found[0],
            )

    def adapter(
        self,
        student: Student,
        metric: Metric,
        rng: random.Random,
        *,
        format_failures: bool,
        reflection_lm: Any,
        instruction_proposer: Any,
        warn_on_score_mismatch: bool,
    ) -> Any:
        """Return a `DspyAdapter` made as `dspy.GEPA` makes it, whose programs have the opt-in components too.

        It proposes new texts by the `instruction_proposer`, or else, with a `reflection_lm`, by DSPy's own proposer.
        Without both, its records are plain texts, as for GEPA's own proposer: then the optimizer proposes new texts.

        Raises:
            ProgramProblem: this DSPy has no proposer of its own.
        """
        is_own = instruction_proposer is None and reflection_lm is not None
        if is_own and "propose_new_texts" not in vars(self._gepa.DspyAdapter):
            raise ProgramProblem(
                "proposer",
                "DSPy %s has no proposer of its own: its dspy.GEPA uses GEPA's, which is the default here; leave "
                "`proposer` out, or install 'dspy>=3.2'" % self._version,
            )

        class Adapter(self._gepa.DspyAdapter):  # type: ignore[misc,name-defined]  # known at run time only
            def build_program(self, candidate: dict[str, str]) -> Any:
                return student.apply(super().build_program(candidate), candidate)

        return Adapter(
            student_module=student.program,
            metric_fn=metric,
            feedback_map={name: _feedback(metric, name, one) for name, one in student.predictors.items()},
            failure_score=_FAILURE_SCORE,
            add_format_failure_as_feedback=format_failures,
            rng=rng,
            reflection_lm=reflection_lm,
            custom_instruction_proposer=None if is_own else instruction_proposer or _propose_nothing,
            warn_on_score_mismatch=warn_on_score_mismatch,
        )

    def usage(self, tracker: Any, program: Any) -> dict[str, Any] | None:
        """Return what the tracker recorded as the contract's `Usage`; None if that may be incomplete.

        If it recorded no call, the cost is zero (DSPy's cache answered), provided that every model of the program is a
        `dspy.LM`, as only these report their calls.
        """
        models: dict[str, dict[str, Any]] = {}
        for name, entries in tracker.usage_data.items():
            for entry in entries:
                add_call(models, name, tokens_of(entry))
        if models:
            return usage_of(models)
        used = [self._dspy.settings.lm, *(predictor.lm for predictor in program.predictors())]
        is_tracked = all(type(lm) is self._dspy.LM for lm in used if lm is not None)
        return {"cost_usd": 0.0, "calls": 0} if is_tracked else None

    def run(self, program: Any, example: Any) -> ProgramRun:
        """Run the program; its errors pass, but for an answer that does not parse."""
        with self._dspy.context(trace=[]):
            try:
                return ProgramRun(program(**example.inputs()), self._dspy.settings.trace.copy(), None)
            except self._parse_error as problem:
                return self._failed_parse(program, example, problem, self._dspy.settings.trace.copy())

    def _failed_parse(self, program: Any, example: Any, problem: Any, trace: list[Any]) -> ProgramRun:
        """Keep the answer as `bootstrap_trace_data` does, which loses partly parsed answers (DSPy 3.4.1)."""
        failed = self._gepa.FailedPrediction(completion_text=str(problem.lm_response), format_reward=_FAILURE_SCORE)
        for predictor in program.predictors():
            if predictor.signature == problem.signature:
                return ProgramRun(failed, [*trace, (predictor, dict(example.inputs()), failed)], problem)
        raise problem


class ProgramRun:
    """The outcome of one example: `problem` is the answer that did not parse, None if all did."""

    def __init__(self, prediction: Any, trace: list[Any], problem: BaseException | None) -> None:
        self.prediction = prediction
        self.trace = trace
        self.problem = problem

    def trajectory(self, example: Any, score: Any) -> dict[str, Any]:
        """Return DSPy's `TraceData`; `score`: what the metric returned."""
        return {
            "example_ind": 0,
            "example": example,
            "prediction": self.prediction,
            "trace": self.trace,
            "score": _FAILURE_SCORE if self.problem is not None else score,
        }


def _feedback(metric: Metric, name: str, predictor: Any) -> Any:
    """Return the metric's feedback on a predictor, else the text of `dspy.GEPA`."""

    def feedback(
        predictor_output: Any, predictor_inputs: Any, module_inputs: Any, module_outputs: Any, captured_trace: Any
    ) -> Any:
        own = [(predictor, predictor_inputs, predictor_output)]
        returned = metric(module_inputs, module_outputs, captured_trace, name, own)
        if not hasattr(returned, "feedback"):
            return {"score": returned, "feedback": "This trajectory got a score of %s." % (returned,)}
        if returned["feedback"] is None:
            returned["feedback"] = "This trajectory got a score of %s." % (returned["score"],)
        return returned

    return feedback


def _propose_nothing(*_: Any, **__: Any) -> Any:
    """Satisfy DSPy's adapter, which requires a proposer; it is never called here."""
    raise NotImplementedError("new texts are proposed by the optimizer")


def _advice(problem: str) -> str:
    return "%s: %s -m pip install 'dspy>=3.0.4'" % (problem, sys.executable)
