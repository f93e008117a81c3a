"""A program of plain functions in a module: `seed_candidate`, `run`, and optional ones."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
from time import monotonic  # user code may replace it in its module
from types import ModuleType
from typing import Any, Callable

from . import json_values, record_images, results, spans
from .errors import Cancelled, InvalidResult, ProgramProblem
from .model_apis import sum_usage
from .network_calls import ExampleCalls
from .program_loading import Config, seed_from
from .stdio_server import Executor
from .steps import Trace, warn, warn_of_feedback
from .zygote import may_fork

_KNOWN = (
    *("run", "score", "seed_candidate", "component_descriptions", "deterministic"),
    *("propose_new_texts", "make_reflective_dataset", "finalize", "write_texts"),
)
"""The names that a module of functions is searched for, but for its version."""

_UNMISTAKABLE = {"propose_new_texts", "make_reflective_dataset"}
"""Those that no helper of another purpose resembles."""

_ALIKE = 0.85
"""From which ratio of `difflib` a name is taken for a misspelt one."""

_NO_SEED = (
    'define `seed_candidate` in the program, such as seed_candidate = {"instructions": "Answer briefly."}, or give '
    "--seed-candidate FILE"
)


class FunctionProgram:
    """The functions of one module, as the methods of the contract."""

    def __init__(self, module: ModuleType, config: Config) -> None:
        spans.watch()
        self._config = config
        self._run: Any = _function(module, "run")
        self._score: Any = _function(module, "score")
        misspelt = _misspelt(module)
        self._no_run = "%s has no function `run(example, candidate)`" % module.__name__
        if "run" in misspelt:
            self._no_run += "; is `%s` meant to be it?" % misspelt["run"]
        for name in _UNMISTAKABLE & set(misspelt):
            raise ProgramProblem("program", "the program has `%s`; did you mean `%s`?" % (misspelt[name], name))
        for name in sorted(set(misspelt) - {"run"}):
            warn("the program has `%s`; did you mean `%s`?" % (misspelt[name], name))
        if self._run is None and self._score is None:
            raise ProgramProblem("program", self._no_run)
        self._propose: Any = _function(module, "propose_new_texts")
        self._reflect: Any = _function(module, "make_reflective_dataset")
        self._finalize: Any = _function(module, "finalize")
        self._write_texts: Any = _function(module, "write_texts")
        parameters = parameters_of(self._run)
        self._traces = "trace" in parameters
        self._counts = "usage" in parameters
        self._scoring_counts = "usage" in parameters_of(self._score)
        self._reads_trajectory = len(_required(self._score) - {"usage"}) > 2  # example, output, trajectory
        self.info = {
            "name": config.name or module.__name__,
            "version": config.version or _text_or_none(module, "version") or _text_or_none(module, "__version__"),
            **config.identity(module),
            "deterministic": _flag_or_none(module, "deterministic"),
            "seed_candidate": seed_from(
                config.seed_candidate, getattr(module, "seed_candidate", None), missing=_NO_SEED
            )
            if self._run is not None
            else {},  # there is nothing that a candidate would change
        }
        self.descriptions = dict(getattr(module, "component_descriptions", None) or {})
        is_async = inspect.iscoroutinefunction(self._run if self._run is not None else self._score)
        is_alone = config.threads == 1 or (config.prefers_forks and may_fork())  # one example in each process
        self.mode = "async" if is_async else "sync" if is_alone else "threads"
        self.max_concurrency = {"async": config.concurrency, "sync": 1, "threads": config.threads}[self.mode]
        self.whole_batches = False
        has_images = "gepa.image" in sys.modules
        offers = (
            (self._run, self.evaluate, ["steps"]),
            (self._reflect, self.make_reflective_dataset, ["reflective_datasets", *(["images"] if has_images else [])]),
            (self._propose, self.propose_new_texts, ["proposals"]),
            (self._score, self.score, ["scoring", *(["score_trajectories"] if self._reads_trajectory else [])]),
            (self._finalize, self.finalize, ["finalize"]),
            (self._write_texts, self.write_texts, ["write_texts"]),
        )
        self.methods = {method.__name__: method for function, method, _ in offers if function is not None}
        self.methods["evaluate"] = self.evaluate  # also of no example, by a program that only scores
        self.capabilities = [name for function, _, names in offers if function is not None for name in names]

    def prepare(self) -> None:
        """Do nothing: everything is prepared before the fork."""

    async def evaluate(self, params: dict[str, Any], executor: Executor) -> str:
        """Run each example in turn; a failure is a result."""
        if self._run is None and params["batch"]:
            raise ProgramProblem("evaluate", self._no_run + ": it only scores what other programs answer")
        texts: list[str] = []
        for example in params["batch"]:
            capture = params.get("capture_traces", False)
            wanted = capture or self._reads_trajectory
            candidate = dict(params["candidate"])
            example_run = _ExampleRun(example["data"], candidate, self._config.calls(), is_trace_wanted=wanted)
            try:
                limit_s = self._config.limit_s(params)
                texts.append(await self._example_result(example_run, executor, self._run_example, capture, limit_s))
            except Cancelled:
                texts += [results.text("cancelled", seconds=0.0)] * (len(params["batch"]) - len(texts))
                break
        return '{"results":[%s]}' % ",".join(texts)

    async def score(self, params: dict[str, Any], executor: Executor) -> str:
        """Score outputs made elsewhere. The server sends those that wait for a score, and keeps their other fields."""
        texts: list[str] = []
        for example, result in zip(params["batch"], params["results"]):  # noqa: B905  # Python 3.8 has no `strict`
            example_run = _ExampleRun(example["data"], {}, self._config.calls(), is_trace_wanted=False)
            example_run.output = result.get("output")
            example_run.trajectory = result.get("trajectory")
            example_run.is_traced_elsewhere = result.get("trajectory_ref") is not None
            limit_s = self._config.limit_s(params)
            texts.append(await self._example_result(example_run, executor, self._scored, False, limit_s))
        return '{"results":[%s]}' % ",".join(texts)

    async def make_reflective_dataset(self, params: dict[str, Any], executor: Executor) -> str:
        """Return the program's own records."""
        arguments = (params[name] for name in ("candidate", "eval_batch", "components_to_update"))
        dataset = await executor.resolve(self._reflect(*arguments))
        return "{%s}" % record_images.dataset_members(dataset)

    async def propose_new_texts(self, params: dict[str, Any], executor: Executor) -> str:
        """Return the program's own new texts."""
        made = record_images.put_back(params["reflective_dataset"], params.get("images") or {})
        texts = await executor.resolve(self._propose(params["candidate"], made, params["components_to_update"]))
        if (fault := fault_of_texts(texts, params["components_to_update"])) is not None:
            reason = "propose_new_texts() returned %s; %s" % (fault, TEXTS_ADVICE)
            raise ProgramProblem("propose_new_texts", reason)
        return json_values.to_text(proposed(texts), "texts")

    async def finalize(self, params: dict[str, Any], executor: Executor) -> str:
        """Call the program's `finalize`; its return value is a message for people."""
        message = await executor.resolve(
            self._finalize(*(params[name] for name in ("best_candidate", "best_score", "run")))
        )
        return "{}" if message is None else '{"message":%s}' % json_values.to_text(str(message), "message")

    async def write_texts(self, params: dict[str, Any], executor: Executor) -> str:
        """Let the program write a candidate's texts into its files; return their paths."""
        files = await executor.resolve(self._write_texts(params["candidate"]))
        return '{"files":%s}' % json_values.to_text([os.fspath(file) for file in files or ()], "files")

    async def _example_result(
        self,
        example_run: _ExampleRun,
        executor: Executor,
        work: Callable[[_ExampleRun, Executor], Any],
        capture_traces: bool,
        limit_s: float | None,
    ) -> str:
        """Return the example's result as JSON; raises `Cancelled`."""
        calls = example_run.calls
        started = monotonic()
        try:
            with calls:
                await executor.within(limit_s, work(example_run, executor))
            outcome: dict[str, Any] = {"status": "rollout" if example_run.score is None else "ok"}
        except Cancelled:
            raise
        except BaseException as problem:  # noqa: BLE001  # user code may raise anything; it is this example's result
            outcome = results.failed(problem, calls, limit_s)
            outcome["output"] = json_values.json_or_repr(example_run.output)
        seconds = monotonic() - started
        example_run.trace.end()
        outcome["usage"] = sum_usage(example_run.usage, example_run.scoring_usage) or calls.usage
        outcome["hosts"] = calls.hosts
        if outcome["status"] in ("ok", "rollout"):
            outcome["output"] = example_run.output
            if example_run.score is not None:
                outcome.update(example_run.score._asdict())
        if capture_traces and (self._traces or example_run.trace.steps):
            outcome["trajectory"] = example_run.trace
        try:
            return results.text(seconds=seconds, **outcome)
        except json_values.NotJsonError as problem:
            kept = {name: outcome.get(name) for name in ("hosts", "trajectory")}
            return results.invalid(str(problem), seconds, usage=json_values.json_or_repr(outcome["usage"]), **kept)

    async def _run_example(self, example_run: _ExampleRun, executor: Executor) -> None:
        extra: dict[str, Any] = {}
        if self._traces:
            extra["trace"] = example_run.trace
        if self._counts:
            extra["usage"] = example_run.usage
        with spans.ExampleSpans(example_run.trace):
            example_run.output = await executor.resolve(self._run(example_run.data, example_run.candidate, **extra))
        results.check_calls(example_run.calls, trusted=self._config.trust_results)
        if self._score is not None:
            if self._reads_trajectory:
                example_run.trajectory = example_run.trace.trajectory()
            await self._scored(example_run, executor)

    async def _scored(self, example_run: _ExampleRun, executor: Executor) -> None:
        extra: dict[str, Any] = {"usage": example_run.scoring_usage} if self._scoring_counts else {}
        given = [example_run.data, example_run.output]
        if self._reads_trajectory:
            if example_run.trajectory is None and example_run.is_traced_elsewhere:
                raise InvalidResult("the scorer reads trajectories, but another server holds this one: send it inline")
            given.append(example_run.trajectory)
        returned = await executor.resolve(self._score(*given, **extra))
        results.check_calls(example_run.calls, trusted=self._config.trust_results)
        example_run.score = results.read_score(returned)
        if example_run.score.component_feedback and example_run.candidate:
            warn_of_feedback(example_run.score.component_feedback, example_run.candidate, example_run.trace.steps)


class _ExampleRun:
    """The state of an example; a failure keeps its steps and usage."""

    def __init__(self, data: Any, candidate: dict[str, str], calls: ExampleCalls, *, is_trace_wanted: bool) -> None:
        self.data = data
        self.candidate = candidate
        self.calls = calls
        self.output: Any = None
        self.score: results.Score | None = None
        self.trace = Trace(candidate, is_wanted=is_trace_wanted)
        self.trajectory: Any = None
        self.usage: dict[str, Any] = {}
        self.scoring_usage: dict[str, Any] = {}
        self.is_traced_elsewhere = False


TEXTS_ADVICE = "return a dict from component to new text, with no component but those asked for"


def fault_of_texts(texts: Any, components: list[str]) -> str | None:
    """Return how the answer of `propose_new_texts` is no dict for these components; None if it is one."""
    if not isinstance(texts, dict):
        return "a %s" % json_values.dotted(type(texts))
    for name in texts:
        if name not in components:
            return "a text for %r, but `components` holds %s alone" % (
                name,
                " and ".join(map(repr, components)) or "none",
            )
    return None


def proposed(texts: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the answer of `propose_new_texts` with `refused`: what is no text of Unicode, by component, with why."""
    faults = {name: _fault_of_text(text) for name, text in texts.items()}
    refused = {name: fault for name, fault in faults.items() if fault is not None}
    usable = {"texts": {name: text for name, text in texts.items() if name not in refused}}
    return {**usable, "refused": refused} if refused else usable


def _fault_of_text(text: Any) -> str | None:
    if not isinstance(text, str):
        return "a %s is no text" % json_values.dotted(type(text))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return "character %d is half of a surrogate pair" % error.start
    return None


def _misspelt(module: ModuleType) -> dict[str, str]:
    """Return the names of the module that look like one it lacks, by that name."""
    own = [
        name
        for name, value in vars(module).items()
        if not (name.startswith("_") or isinstance(value, ModuleType))
        and (not callable(value) or getattr(value, "__module__", None) == module.__name__)
    ]
    lacking = [name for name in _KNOWN if name not in own]
    near = {name: difflib.get_close_matches(name, set(own) - set(_KNOWN), 1, _ALIKE) for name in lacking}
    return {name: found[0] for name, found in near.items() if found}


def _function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    function = getattr(module, name, None)
    if function is not None and not callable(function):
        raise ProgramProblem("program", "`%s` in %s is no function" % (name, module.__name__))
    return function


def _required(function: Callable[..., Any] | None) -> frozenset[str]:
    """Return the names of the positional parameters without a default: a third one with a default is the user's own."""
    if function is None or not parameters_of(function):
        return frozenset()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return frozenset(each.name for each in parameters if each.kind in positional and each.default is each.empty)


def parameters_of(function: Callable[..., Any] | None) -> frozenset[str]:
    """Return the names of the parameters; none of a function that hides them."""
    if function is None:
        return frozenset()
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a callable written in C may hide them
        return frozenset()


def _flag_or_none(module: ModuleType, name: str) -> bool | None:
    value = getattr(module, name, None)
    if value is not None and not isinstance(value, bool):
        raise ProgramProblem("program", "`%s` must be True or False, not %s" % (name, type(value).__name__))
    return value


def _text_or_none(module: ModuleType, name: str) -> str | None:
    value = getattr(module, name, None)
    return value if isinstance(value, str) else None
