"""A DSPy program given by dotted paths: its predictors' texts are the components, its traces are kept by reference."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import deque
from typing import Any

from . import json_values, results
from .adapter_programs import BatchStore
from .dspy_adapter import KEPT, DspyModules, Metric, read_metric, steps_as_json
from .dspy_student import Rows, SavedProgram, Student
from .errors import ModelUnavailable, ProgramProblem
from .function_programs import TEXTS_ADVICE, fault_of_texts, proposed
from .network_calls import ExampleCalls
from .program_loading import Config, import_dotted
from .results import Score
from .stdio_server import Executor


class DspyProgram:
    """Created where the program is imported, in the main thread, as in the user's own script."""

    def __init__(self, config: Config) -> None:
        self._config = config
        if isinstance(config.program, str):
            sys.path.insert(0, config.root)
        self._dspy = DspyModules()
        program = self._create_program(config.program or "")
        metric = import_dotted(config.metric or "")
        self._metric = Metric(metric, config.metric if isinstance(config.metric, str) else "metric")
        self._saved = SavedProgram(config.saved_program, config.root)
        self._saved.load_into(program)
        self._dspy.refuse_flex(program)
        self._dspy.load_litellm(program)
        self._student = Student(program, config)
        self._rng = random.Random(config.seed)  # noqa: S311  # for choosing, not for secrets
        self._reflecting = threading.Lock()  # the choices follow one another
        self._rows = Rows(self._dspy.package, self._student, config.rows)
        self._adapter = self._dspy.adapter(self._student, self._metric, self._rng, config)
        self._records = RecordObjects()
        self._store = BatchStore(config.max_trace_bytes)
        self.mode = "threads" if config.threads > 1 else "sync"
        self.max_concurrency = config.threads
        self.whole_batches = False
        self.descriptions = self._student.descriptions
        self.info: dict[str, Any] = {
            "name": config.name or type(program).__name__,
            "version": config.version,
            **config.identity(sys.modules.get(type(program).__module__), saved_program=self._saved.digest),
            "seed_candidate": dict(self._student.seed),
        }
        self.capabilities = ["reflective_datasets", "refs", "adapter_state", "finalize", "untyped_rows"]
        self.methods = {
            "evaluate": self.evaluate,
            "make_reflective_dataset": self.make_reflective_dataset,
            "finalize": self.finalize,
        }
        if config.reflection_lm is not None or config.instruction_proposer is not None:
            self.capabilities.append("proposals")
            self.methods["propose_new_texts"] = self.propose_new_texts
        if self._saved.is_set and self._saved.inside is not None:
            self.capabilities.append("write_texts")
            self.methods["write_texts"] = self.write_texts

    def prepare(self) -> None:
        """Do nothing: everything is prepared before the fork."""

    async def evaluate(self, params: dict[str, Any], executor: Executor) -> str:
        """Run each example in turn on a copy of the program; a failure is a result."""
        meta = params.get("_meta") or {}
        with self._reflecting:
            self._restore(meta.get("adapter_state"))
        limit_s = self._config.limit_s(params)
        keep = self._keep_inline if meta.get("group") is None else self._keep_by_ref
        texts = [
            await self._example_result(
                example, params["candidate"], executor, keep if params.get("capture_traces") else None, limit_s
            )
            for example in params["batch"]
        ]
        return '{"results":[%s]}' % ",".join(texts)

    async def make_reflective_dataset(self, params: dict[str, Any], executor: Executor) -> str:  # noqa: ARG002  # as every method
        """Return the records that DSPy's adapter makes for the components' predictors."""
        components = params["components_to_update"]
        with self._reflecting:
            self._restore(params.get("adapter_state"))
            records: dict[str, Any] = {}
            if components:
                given = [ref for ref in map(_ref_of, params["eval_batch"]["results"]) if ref]
                owners = list(dict.fromkeys(map(self._student.predictor_of, components)))
                made = self._adapter.make_reflective_dataset(params["candidate"], self._store.batch(given), owners)
                of_owner = {name: self._records.as_json(records) for name, records in made.items()}
                owned = ((name, of_owner.get(self._student.predictor_of(name))) for name in components)
                records = {name: found for name, found in owned if found is not None}
            state = {"rng_state": self._rng.getstate()}
        return '{"dataset":%s,"adapter_state":%s}' % (
            json_values.readable_text(records, "dataset"),
            json_values.exact_text(state, "adapter_state"),
        )

    async def propose_new_texts(self, params: dict[str, Any], executor: Executor) -> str:  # noqa: ARG002  # as every method
        """Return new texts of DSPy's proposer or the user's, which call the reflection model in this process."""
        dataset = {name: self._records.objects_of(shown) for name, shown in params["reflective_dataset"].items()}
        components = params["components_to_update"]
        texts = self._adapter.propose_new_texts(params["candidate"], dataset, components)
        if (fault := fault_of_texts(texts, components)) is not None:
            raise ProgramProblem("propose_new_texts", "the proposer returned %s; %s" % (fault, TEXTS_ADVICE))
        return json_values.to_text(proposed(texts), "texts")

    async def finalize(self, params: dict[str, Any], executor: Executor) -> str:  # noqa: ARG002  # as every method
        """Save the best candidate's program."""
        self._saved.write(self._adapter.build_program(params["best_candidate"]))
        message = "the best program is in %s, for `program.load`" % self._saved.path
        return '{"message":%s}' % json_values.to_text(message, "message")

    async def write_texts(self, params: dict[str, Any], executor: Executor) -> str:  # noqa: ARG002  # as every method
        """Write a candidate's texts into the saved program; return that file."""
        self._saved.write(self._adapter.build_program(params["candidate"]))
        return '{"files":%s}' % json_values.to_text([self._saved.inside], "files")

    async def _example_result(
        self, given: dict[str, Any], candidate: dict[str, str], executor: Executor, keep: Any, limit_s: float | None
    ) -> str:
        """Return the result as JSON. `keep`: returns how it has its trajectory; None if it has none."""
        example_run = _DspyExampleRun(self._config.calls())
        started = time.monotonic()
        try:
            with example_run.calls:
                await executor.within(limit_s, self._run_example(example_run, given, candidate))
            outcome: dict[str, Any] = {"status": "ok", "output": self._shown(example_run.trajectory)}
            outcome.update(example_run.score._asdict() if example_run.score is not None else {})
        except BaseException as problem:  # noqa: BLE001  # user code may raise anything; it is this example's result
            outcome = results.failed(problem, example_run.calls, limit_s)
            if issubclass(type(problem), ModelUnavailable):
                outcome["output"] = self._shown(example_run.trajectory)
        seconds = time.monotonic() - started
        if keep is not None and example_run.is_complete:
            outcome.update(keep(example_run))
        usage = self._dspy.usage(example_run.calls, self._student.program)
        return results.text(seconds=seconds, usage=usage, hosts=example_run.calls.hosts, **outcome)

    async def _run_example(self, example_run: _DspyExampleRun, given: Any, candidate: dict[str, str]) -> None:
        example = self._rows.example(given)
        trajectory, problem = self._dspy.run(self._adapter.build_program(candidate), example)
        example_run.trajectory, example_run.problem = trajectory, problem
        if problem is not None:
            raise problem
        results.check_calls(example_run.calls, trusted=self._config.trust_results)
        # As `dspy.GEPA`, which gives a trace for feedback alone.
        trajectory["score"] = returned = self._metric(example, trajectory["prediction"])
        results.check_calls(example_run.calls, trusted=self._config.trust_results)
        example_run.score = read_metric(returned, self._dspy.prediction)

    def _shown(self, trajectory: dict[str, Any]) -> Any:
        prediction = trajectory["prediction"]
        return json_values.json_or_repr(
            prediction.toDict() if isinstance(prediction, self._dspy.prediction) else prediction
        )

    def _keep_by_ref(self, example_run: _DspyExampleRun) -> dict[str, Any]:
        return {"trajectory_ref": self._keep(example_run.trajectory)}

    def _keep_inline(self, example_run: _DspyExampleRun) -> dict[str, Any]:
        ref = self._keep(example_run.trajectory)
        return {"trajectory": steps_as_json(example_run.trajectory, example_run.problem, ref)}

    def _keep(self, trajectory: Any) -> Any:
        batch = self._dspy.batch(
            outputs=[trajectory["prediction"]], scores=[trajectory["score"]], trajectories=[trajectory]
        )
        # Without the predictors of the trace, which lead to the whole program and its model.
        steps = [step[1:] for step in trajectory["trace"]]
        return self._store.keep(batch, measured=(trajectory["example"], trajectory["prediction"], steps))[0]

    def _restore(self, state: Any) -> None:
        """Continue from a returned state; an empty one starts anew, as a run does."""
        if state is None:
            return
        if not state:
            self._rng.seed(self._config.seed)
            return
        version, internal, gauss_next = state["rng_state"]
        self._rng.setstate((version, tuple(internal), gauss_next))

    def _create_program(self, target: str) -> Any:
        found = import_dotted(target)
        if not isinstance(found, self._dspy.module):
            if not callable(found):
                raise ProgramProblem("program", "%s is a %s, not a class" % (target, json_values.dotted(type(found))))
            try:
                found = found()
            except Exception as problem:
                raise ProgramProblem("program", "it cannot be made") from problem
        if not isinstance(found, self._dspy.module):
            raise ProgramProblem(
                "program", "%s makes a %s, not a dspy.Module" % (target, json_values.dotted(type(found)))
            )
        return found


class _DspyExampleRun:
    """The state of an example: its trajectory is complete if it has a score, or an answer that did not parse."""

    def __init__(self, calls: ExampleCalls) -> None:
        self.calls = calls
        self.score: Score | None = None
        self.trajectory: Any = None
        self.problem: BaseException | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the program ran to an end that can be reflected on."""
        return self.score is not None or self.problem is not None


def _ref_of(result: dict[str, Any]) -> Any:
    """Return what names a result's trajectory here, also if the client was sent its steps."""
    trajectory = result.get("trajectory")
    return trajectory.get(KEPT) if isinstance(trajectory, dict) else result.get("trajectory_ref")


_MOST_KEPT = 64
"""Lists of records kept as objects: more than the concurrent proposals of one optimizer."""


class RecordObjects:
    """Lists of records beside their JSON form, to restore the objects of a list that the client sends back.

    Images and histories are objects in DSPy's records, and texts in JSON. A list that was evicted, or made by another
    process, stays JSON. Thread-safe.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[list[Any], list[Any]]] = deque(maxlen=_MOST_KEPT)

    def as_json(self, records: list[Any]) -> list[Any]:
        """Return the records as JSON values."""
        shown = [_plain(record) for record in records]
        if shown != records:
            self._kept.append((shown, records))
        return shown

    def objects_of(self, shown: list[Any]) -> list[Any]:
        """Return the objects of records that `as_json` returned, else the given list."""
        return next((records for known, records in self._kept.copy() if known == shown), shown)


def _plain(value: Any) -> Any:
    """Return a record as JSON; DSPy's own types (images, files) as their text in a prompt."""
    if isinstance(value, dict):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(member) for member in value]
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
