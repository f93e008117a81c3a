"""Any GEPAAdapter, unchanged: whole batches, trajectories kept here by reference, and its state carried along."""

from __future__ import annotations

import binascii
import copy
import dataclasses
import gc
import os
import sys
import threading
import time
from collections import OrderedDict
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from . import json_values, record_images, results
from .errors import ContractError, InvalidResult, ProgramProblem
from .function_programs import parameters_of, proposed
from .program_loading import Config, seed_from
from .stdio_server import Executor

# What a program has once, however many objects lead to it.
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)


def object_size(value: Any, enough: int) -> int:
    """Return the approximate bytes of an object and of all that it alone refers to; stop beyond `enough`."""
    total, seen, waiting = 0, set(), [value]
    while waiting and total <= enough:
        one = waiting.pop()
        if id(one) in seen or issubclass(type(one), _SHARED):
            continue
        seen.add(id(one))
        total += _own_size(one)
        waiting.extend(gc.get_referents(one))
    return total


def _own_size(value: Any) -> int:
    try:
        return sys.getsizeof(value)
    except Exception:  # noqa: BLE001  # `__sizeof__` may be user code
        return object.__sizeof__(value)


_NO_SEED = (
    "give it with --seed-candidate FILE (or JSON), or as `seed_candidate` in gepa.toml, such as "
    """{"instructions": "Answer briefly."}"""
)
_TRAJECTORY_EXPIRED = -32024


class AdapterProgram:
    """One adapter object, created in the process that serves it."""

    def __init__(self, make: Any, arguments: dict[str, Any], config: Config) -> None:
        self._make = make
        self._arguments = arguments
        self._config = config
        self._adapter: Any = None
        self._store = BatchStore(config.max_trace_bytes)
        self.mode = "threads" if config.threads > 1 else "sync"
        self.max_concurrency = config.threads  # of calls, each a whole batch
        self.whole_batches = True
        self.descriptions: dict[str, str] = {}
        self.info: dict[str, Any] = {
            "name": config.name or (config.adapter or "").rpartition(":")[2],
            "version": config.version,
            "seed_candidate": seed_from(config.seed_candidate, missing=_NO_SEED),
        }
        self.capabilities = ["reflective_datasets", "refs", "images"]
        self.methods = {"evaluate": self.evaluate, "make_reflective_dataset": self.make_reflective_dataset}

    def prepare(self) -> None:
        """Create the adapter, and detect what it offers."""
        if self._adapter is not None:
            return
        try:
            self._adapter = self._make(**self._arguments) if callable(self._make) else self._make
        except Exception as problem:
            raise ProgramProblem("adapter", "it cannot be made") from problem
        for name in ("evaluate", "make_reflective_dataset"):
            if not callable(getattr(self._adapter, name, None)):
                raise ProgramProblem("adapter", "%s has no method `%s`" % (type(self._adapter).__name__, name))
        self.info.update(self._config.identity(sys.modules.get((self._config.adapter or "").partition(":")[0])))
        if getattr(self._adapter, "propose_new_texts", None) is not None:
            self.capabilities.append("proposals")
            self.methods["propose_new_texts"] = self.propose_new_texts
        if hasattr(self._adapter, "get_adapter_state") and hasattr(self._adapter, "set_adapter_state"):
            self.capabilities.append("adapter_state")
        if callable(getattr(self._adapter, "batch_evaluate", None)):
            self.capabilities.append("batch_evaluate")

    async def evaluate(self, params: dict[str, Any], executor: Executor) -> str:
        """Evaluate the whole batch, of one candidate or of several (`items`), in one call to the adapter."""
        self._restore((params.get("_meta") or {}).get("adapter_state"))
        batch, capture = params["batch"], params.get("capture_traces", False)
        data = [example["data"] for example in batch]
        items = _with_rows(params["items"], data) if params.get("items") is not None else None
        limit_s = self._config.limit_s(params)
        limit_s = None if limit_s is None else limit_s * max(1, len(batch))
        calls = self._config.calls(is_batch=True)
        outputs: list[Any] = [None] * len(batch)
        started = time.monotonic()
        try:
            with calls:
                if items is None:
                    answers = [await executor.within(limit_s, self._evaluate_batch(data, params["candidate"], capture))]
                    _check_lengths(answers[0], len(batch), capture)
                else:
                    answers = await executor.within(limit_s, self._evaluate_items(items, capture))
                    _check_answers(answers, items, capture)
            outputs = [json_values.json_or_repr(output) for answer in answers for output in answer.outputs]
            results.check_calls(calls, trusted=self._config.trust_results)
        except BaseException as problem:  # noqa: BLE001  # user code may raise anything; it is the batch's result
            outcome = {**results.failed(problem, calls, limit_s), "hosts": calls.hosts}
            seconds = (time.monotonic() - started) / max(1, len(batch))
            texts = [results.text(seconds=seconds, output=output, **outcome) for output in outputs]
            return '{"results":[%s]%s}' % (",".join(texts), self._state_text(required=False))
        seconds = (time.monotonic() - started) / max(1, len(batch))
        texts = [text for answer in answers for text in self._results(answer, capture, seconds, calls.hosts)]
        return '{"results":[%s]%s}' % (",".join(texts), self._state_text(required=False))

    async def _evaluate_batch(self, data: list[Any], candidate: dict[str, str], capture: bool) -> Any:
        return self._adapter.evaluate(data, candidate, capture_traces=capture)

    async def _evaluate_items(self, items: list[tuple[dict[str, str], list[Any]]], capture: bool) -> Any:
        batch_evaluate = self._adapter.batch_evaluate
        if "capture_traces" in parameters_of(batch_evaluate):  # an interface newer than GEPA 0.1.4's
            return batch_evaluate(items, capture_traces=capture)
        return batch_evaluate(items)

    def _results(self, answer: Any, capture: bool, seconds: float, hosts: dict[str, Any]) -> list[str]:
        size = len(answer.scores)
        refs = self._store.keep(answer) if capture and answer.trajectories is not None else [None] * size
        counts = _metric_call_shares(answer, size)
        return [
            _result(answer, index, seconds, trajectory_ref=refs[index], metric_calls=counts[index], hosts=hosts)
            for index in range(size)
        ]

    async def make_reflective_dataset(self, params: dict[str, Any], executor: Executor) -> str:  # noqa: ARG002  # as every method
        """Return the adapter's own records, from the trajectories it made."""
        self._restore(params.get("adapter_state"))
        if not params["components_to_update"]:  # a request that only transfers the state
            return '{"dataset":{}%s}' % self._state_text(required=True)
        refs = [result["trajectory_ref"] for result in params["eval_batch"]["results"] if result.get("trajectory_ref")]
        dataset = self._adapter.make_reflective_dataset(
            params["candidate"], self._store.batch(refs), params["components_to_update"]
        )
        dataset = {name: [dict(record) for record in made] for name, made in dataset.items()}
        return "{%s%s}" % (
            record_images.dataset_members(dataset),
            self._state_text(required=True),
        )

    async def propose_new_texts(self, params: dict[str, Any], executor: Executor) -> str:  # noqa: ARG002  # as every method
        """Return the adapter's own new texts."""
        dataset = record_images.put_back(params["reflective_dataset"], params.get("images") or {})
        texts = self._adapter.propose_new_texts(params["candidate"], dataset, params["components_to_update"])
        return json_values.to_text(proposed(dict(texts)), "texts")

    def _restore(self, state: Any) -> None:
        if state is not None and "adapter_state" in self.capabilities:
            self._adapter.set_adapter_state(state)

    def _state_text(self, *, required: bool) -> str:
        """Return the state as a further member of a result; omit an optional one that is not JSON."""
        if "adapter_state" not in self.capabilities:
            return ""
        try:
            return ',"adapter_state":%s' % json_values.exact_text(self._adapter.get_adapter_state(), "adapter_state")
        except json_values.NotJsonError:
            if required:
                raise
            return ""


class BatchStore:
    """Evaluated batches with their trajectories, about `max_bytes` at most.

    Whole batches are evicted, oldest first; the newest always stays, or nothing could be reflected on.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._batches: OrderedDict[str, Any] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._lock = threading.Lock()  # a thread-safe adapter is called in several threads
        # Part of every ref, so that an earlier process's refs are never resolved here.
        self._life = binascii.hexlify(os.urandom(6)).decode()
        self._count = 0

    def keep(self, batch: Any, *, measured: Any = None) -> list[str | None]:
        """Keep a batch of the size of `measured` (default: its own); return a ref for each example."""
        size = object_size(batch if measured is None else measured, self._max_bytes)
        with self._lock:
            self._count += 1
            name = "%s-%d" % (self._life, self._count)
            self._batches[name] = batch
            self._sizes[name] = size
            self._bytes += size
            while self._bytes > self._max_bytes and len(self._batches) > 1:
                oldest, _ = self._batches.popitem(last=False)
                self._bytes -= self._sizes.pop(oldest)
        return ["%s.%d" % (name, index) for index in range(len(batch.scores))]

    def batch(self, refs: list[str]) -> Any:
        """Return the batch of these refs: the very object if they are all of it, in order.

        Raises:
            ContractError: some trajectories were evicted.
        """
        places = [self._place(ref) for ref in refs]
        lost = [ref for ref, place in zip(refs, places) if place is None]  # noqa: B905  # Python 3.8 has no `strict`
        if lost:
            raise ContractError(_TRAJECTORY_EXPIRED, "Trajectory expired", refs=lost)
        found = [place for place in places if place is not None]
        if not found:
            raise ProgramProblem("make_reflective_dataset", "no result of the batch has a trajectory")
        first = found[0][0]
        if [index for batch, index in found if batch is first] == list(range(len(first.scores))) and len(found) == len(
            first.scores
        ):
            return first
        fields: dict[str, Any] = {
            "outputs": [batch.outputs[index] for batch, index in found],
            "scores": [batch.scores[index] for batch, index in found],
            "trajectories": [batch.trajectories[index] for batch, index in found],
        }
        if hasattr(first, "objective_scores"):  # older versions of GEPA have none
            some_missing = any(_objectives(batch) is None for batch, _ in found)
            objectives = None if some_missing else [batch.objective_scores[index] for batch, index in found]
            fields["objective_scores"] = objectives
        return _with_fields(first, **fields)

    def _place(self, ref: str) -> tuple[Any, int] | None:
        name, _, index = ref.rpartition(".")
        batch = self._batches.get(name)
        if batch is None or not index.isdigit() or int(index) >= len(batch.scores):
            return None
        return batch, int(index)


def _with_fields(batch: Any, **fields: Any) -> Any:
    if dataclasses.is_dataclass(batch):
        return dataclasses.replace(batch, **fields)  # type: ignore[type-var]  # an instance, of the user's own type
    other = copy.copy(batch)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _check_lengths(answer: Any, expected: int, capture: bool) -> None:
    for name in ("outputs", "scores", "trajectories", "objective_scores"):
        values = getattr(answer, name, None)
        if values is None and (name == "objective_scores" or name == "trajectories"):
            continue
        if values is None:
            raise InvalidResult("evaluate() returned a %s without `%s`" % (json_values.dotted(type(answer)), name))
        if len(values) != expected and (capture or name != "trajectories"):
            raise InvalidResult("evaluate() returned %d %s for %d examples" % (len(values), name, expected))


def _with_rows(items: list[dict[str, Any]], data: list[Any]) -> list[tuple[dict[str, str], list[Any]]]:
    """Return GEPA's `(candidate, batch)` pairs: each item with its share of the rows."""
    rows = iter(data)
    return [(item["candidate"], [next(rows) for _ in range(item["size"])]) for item in items]


def _check_answers(answers: Any, items: list[tuple[dict[str, str], list[Any]]], capture: bool) -> None:
    if len(answers) != len(items):
        raise InvalidResult("batch_evaluate() returned %d batches for %d items" % (len(answers), len(items)))
    for answer, (_, rows) in zip(answers, items):  # noqa: B905  # Python 3.8 has no `strict`
        _check_lengths(answer, len(rows), capture)


def _objectives(answer: Any) -> Any:
    return getattr(answer, "objective_scores", None)


def _metric_call_shares(answer: Any, count: int) -> list[int | None]:
    """Spread the batch's `num_metric_calls` over its examples, keeping the sum; None if it states none."""
    total = getattr(answer, "num_metric_calls", None)
    if total is None or count == 0:
        return [None] * count
    share, extra = divmod(int(total), count)
    return [share + (index < extra) for index in range(count)]


def _result(answer: Any, index: int, seconds: float, **known: Any) -> str:
    objectives = _objectives(answer)
    try:
        score = results.read_score((answer.scores[index], None, None if objectives is None else objectives[index]))
        output = json_values.json_or_repr(answer.outputs[index])
        return results.text("ok", seconds=seconds, output=output, **score._asdict(), **known)
    except InvalidResult as problem:
        return results.invalid(str(problem), seconds, **known)
