"""DSPy's own GEPA adapter over a student: the metric, a run with its trace and its cost, and what traces show."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import random
import sys
from typing import Any, Callable, Mapping

from . import json_values, results
from .dspy_student import Student
from .errors import InvalidResult, ProgramProblem
from .json_values import json_form
from .network_calls import ExampleCalls
from .program_loading import Config, import_dotted
from .steps import PARSE_FAILURE

_FAILURE_SCORE = 0.0  # only inside trajectories: the optimizer's settings define the score of a failure


class DspyModules:
    """The parts of DSPy in use, imported from the user's environment."""

    def __init__(self) -> None:
        try:
            self.package = importlib.import_module("dspy")
        except ModuleNotFoundError as problem:
            if problem.name != "dspy":
                raise
            raise ProgramProblem("import", _advice("DSPy is not installed for %s" % sys.executable)) from None
        self._version: str = getattr(self.package, "__version__", "of an unknown version")
        try:
            self._gepa = importlib.import_module("dspy.teleprompt.gepa.gepa_utils")
        except ModuleNotFoundError:
            raise ProgramProblem("import", _advice("DSPy %s has no GEPA adapter" % self._version)) from None
        self._parse_error: Any = importlib.import_module("dspy.utils.exceptions").AdapterParseError
        self.module: Any = self.package.Module
        self.prediction: Any = self.package.Prediction
        self.batch: Any = self._gepa.EvaluationBatch
        self._failed: Any = importlib.import_module("dspy.teleprompt.bootstrap_trace").FailedPrediction

    def refuse_flex(self, program: Any) -> None:
        """Refuse a program whose code DSPy would evolve.

        Raises:
            ProgramProblem: naming the part that is a `dspy.Flex`.
        """
        flex = getattr(self.package, "Flex", None)
        found = [name for name, part in program.named_parameters() if flex is not None and isinstance(part, flex)]
        if found:
            raise ProgramProblem(
                "program",
                "%r is a dspy.Flex, whose code is not evolved here: use dspy.Predict in its place, and evolve code "
                "with --allow-mutations" % found[0],
            )

    def load_litellm(self, program: Any) -> None:
        """Import litellm if a model of the program calls it: DSPy does so at the first call, and fails in threads."""
        models = [self.package.settings.lm, *(each.lm for each in program.predictors())]
        if any(getattr(type(each), "forward", None) is self.package.LM.forward for each in models):
            with contextlib.suppress(ModuleNotFoundError):  # DSPy names what to install, once it is called
                importlib.import_module("litellm")

    def adapter(self, student: Student, metric: Metric, rng: random.Random, config: Config) -> Any:
        """Return a `DspyAdapter` made as `dspy.GEPA` makes it, whose programs have the opt-in components too.

        It proposes new texts by the `instruction_proposer`, or else, with a `reflection_lm`, by DSPy's own proposer.
        Without both, its records are plain texts, as for GEPA's own proposer: then the optimizer proposes new texts.

        Raises:
            ProgramProblem: this DSPy has no proposer of its own.
        """
        model = _made(config.reflection_lm, "reflection_lm", "not a dspy.LM", inspect.isfunction, inspect.isclass)
        proposer = _made(config.instruction_proposer, "instruction_proposer", "which cannot be called", inspect.isclass)
        is_own = proposer is None and model is not None
        if is_own and "propose_new_texts" not in vars(self._gepa.DspyAdapter):
            raise ProgramProblem(
                "proposer",
                "DSPy %s has no proposer of its own: its dspy.GEPA uses GEPA's, which is the default here; leave "
                "`proposer` out, or install 'dspy>=3.2'" % self._version,
            )

        batch, failed, predict = self.batch, self._failed, self.package.Predict

        class Adapter(self._gepa.DspyAdapter):  # type: ignore[misc,name-defined]  # known at run time only
            def build_program(self, candidate: dict[str, str]) -> Any:
                program = student.apply(super().build_program(candidate), candidate)
                return mark(program, predict)

            def make_reflective_dataset(self, candidate: dict[str, str], eval_batch: Any, names: list[str]) -> Any:
                predictors = self.build_program(candidate).named_predictors()
                signatures = {name: predictor.signature for name, predictor in predictors}
                made: dict[str, Any] = {}
                for name in names:
                    own = [
                        {**trajectory, "trace": own_calls(trajectory, name, signatures)}
                        for trajectory in eval_batch.trajectories
                    ]
                    if shown := [trajectory for trajectory in own if self._has_record(trajectory)]:
                        shown_batch = batch(outputs=[], scores=[], trajectories=shown)
                        made.update(super().make_reflective_dataset(candidate, shown_batch, [name]))
                if not made:
                    raise ProgramProblem("make_reflective_dataset", "no example has an answer of %s" % ", ".join(names))
                return made

            def _has_record(self, trajectory: dict[str, Any]) -> bool:
                """Return whether DSPy makes a record of a call: it raises an error if there is none of any."""
                if isinstance(trajectory["prediction"], failed):
                    unparsed = any(isinstance(call[2], failed) for call in trajectory["trace"])
                    return bool(self.add_format_failure_as_feedback) and unparsed
                return bool(trajectory["trace"])

        return Adapter(
            student_module=student.program,
            metric_fn=metric,
            feedback_map={name: feedback_on(metric, name, one) for name, one in student.predictors.items()},
            failure_score=_FAILURE_SCORE,
            add_format_failure_as_feedback=config.add_format_failure_as_feedback,
            rng=rng,
            reflection_lm=model,
            custom_instruction_proposer=None if is_own else proposer or _propose_nothing,
            warn_on_score_mismatch=config.warn_on_score_mismatch,
        )

    def usage(self, calls: ExampleCalls, program: Any) -> dict[str, Any] | None:
        """Return the contract's `Usage` of the calls; None if that is not known.

        Without a call the cost is zero (DSPy's cache answered), provided that every model of the program is a
        `dspy.LM`, whose calls are watched.
        """
        if (usage := calls.usage) is not None:
            return usage
        used = [self.package.settings.lm, *(predictor.lm for predictor in program.predictors())]
        is_watched = all(type(lm) is self.package.LM for lm in used if lm is not None)
        return {"cost_usd": 0.0, "calls": 0} if is_watched else None

    def run(self, program: Any, example: Any) -> tuple[dict[str, Any], BaseException | None]:
        """Run the program; return DSPy's `TraceData`, without a score, and the answer that did not parse.

        Such an answer is kept as `bootstrap_trace_data` keeps it, which loses partly parsed ones (DSPy 3.4.1). Other
        errors pass.
        """
        with self.package.context(trace=[]):
            problem: Any = None
            try:
                prediction = program(**example.inputs())
            except self._parse_error as unparsed:
                problem = unparsed
                prediction = self._failed(completion_text=str(problem.lm_response), format_reward=_FAILURE_SCORE)
            trace = self.package.settings.trace.copy()
        if problem is not None:
            whose = next((one for one in program.predictors() if one.signature == problem.signature), None)
            if whose is None:
                raise problem
            trace.append((whose, dict(example.inputs()), prediction))
        data = {"example_ind": 0, "example": example, "prediction": prediction, "trace": trace}
        return {**data, "score": _FAILURE_SCORE}, problem


def _made(target: Any, setting: str, meant: str, *makers: Callable[[Any], bool]) -> Any:
    """Return what a setting names, or what that makes if it is one of the `makers`; None if the setting is None.

    Raises:
        ProgramProblem: it cannot be called, so that it is not what is `meant`.
    """
    found = import_dotted(target)
    if any(is_maker(found) for is_maker in makers):
        found = found()
    if target is not None and not callable(found):
        raise ProgramProblem(setting, "%s is a %s, %s" % (target, json_values.dotted(type(found)), meant))
    return found


def _propose_nothing(*_: Any, **__: Any) -> Any:
    """Satisfy DSPy's adapter, which requires a proposer; it is never called here."""
    raise NotImplementedError("new texts are proposed by the optimizer")


def _advice(problem: str) -> str:
    return "%s: %s -m pip install 'dspy>=3.0.4'" % (problem, sys.executable)


_FORMS = (
    (5, "(gold, pred, trace, pred_name, pred_trace)"),
    (3, "(example, prediction, trace)"),
    (2, "(example, prediction)"),
)


class Metric:
    """A function of one of the `_FORMS`, called in the longest form that it accepts."""

    def __init__(self, function: Any, name: str) -> None:
        if not callable(function):
            raise ProgramProblem("metric", "%s is a %s, not a function" % (name, json_values.dotted(type(function))))
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


def steps_as_json(trajectory: dict[str, Any], problem: BaseException | None, ref: str) -> dict[str, Any]:
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
