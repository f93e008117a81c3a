"""DSPy's own GEPA adapter over a student: the user's metric, one example's run with its trace, and what that cost."""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any

from . import dspy_traces
from .calls import ExampleCalls
from .dspy_metric import Metric
from .dspy_student import Student
from .errors import ProgramProblem

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

        batch, failed, predict = self.batch, self._failed, self.package.Predict

        class Adapter(self._gepa.DspyAdapter):  # type: ignore[misc,name-defined]  # known at run time only
            def build_program(self, candidate: dict[str, str]) -> Any:
                program = student.apply(super().build_program(candidate), candidate)
                return dspy_traces.mark(program, predict)

            def make_reflective_dataset(self, candidate: dict[str, str], eval_batch: Any, names: list[str]) -> Any:
                predictors = self.build_program(candidate).named_predictors()
                signatures = {name: predictor.signature for name, predictor in predictors}
                made: dict[str, Any] = {}
                for name in names:
                    own = [
                        {**trajectory, "trace": dspy_traces.own_calls(trajectory, name, signatures)}
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
            feedback_map={name: dspy_traces.feedback_on(metric, name, one) for name, one in student.predictors.items()},
            failure_score=_FAILURE_SCORE,
            add_format_failure_as_feedback=format_failures,
            rng=rng,
            reflection_lm=reflection_lm,
            custom_instruction_proposer=None if is_own else instruction_proposer or _propose_nothing,
            warn_on_score_mismatch=warn_on_score_mismatch,
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


def _propose_nothing(*_: Any, **__: Any) -> Any:
    """Satisfy DSPy's adapter, which requires a proposer; it is never called here."""
    raise NotImplementedError("new texts are proposed by the optimizer")


def _advice(problem: str) -> str:
    return "%s: %s -m pip install 'dspy>=3.0.4'" % (problem, sys.executable)
