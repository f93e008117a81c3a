"""Units of work for the program: their progress, their result, and what remains when they are cancelled."""

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

import orjson

from protocol import EvaluateParams, Example, JsonValue, Meta, Progress
from protocol.errors import CallCancelled
from rpc_server.methods.trace_store import TrajectoryRefs
from rpc_server.program.process import report_output
from rpc_server.program.program import Program, ResultDict
from rpc_server.program.results import answer_too_large, without_output, written_by
from rpc_server.rpc import wire


class CallJob(ABC):
    """A checked unit of work that may start, of `total` examples, of which `left` have not ended.

    `message`: its present step, in a few words.
    """

    def __init__(self, total: int = 1, *, left: int | None = None) -> None:
        self._total = total
        self.left = total if left is None else left
        self.message: str | None = None

    @property
    def progress(self) -> Progress:
        """Its progress, in examples."""
        return Progress(done=self._total - self.left, total=self._total, message=self.message)

    @property
    def finished_results(self) -> list[dict[str, JsonValue]] | None:
        """The results of finished examples with their `index`; None for a job without examples of its own."""
        return None

    @abstractmethod
    async def run(self) -> JsonValue:
        """Run it and return its result; `left` decreases as each example ends. Called once."""

    def cancelled_result(self) -> JsonValue:
        """Return the result of a cancelled job; raises `CallCancelled` if there is none."""
        raise CallCancelled


_NO_ROOM = orjson.Fragment(b"null")
"""In place of a result that would make the answer too large."""


class EvaluateJob(CallJob):
    """A candidate on a batch; if it is cancelled, finished examples keep their results.

    `batch`: its examples with their data. `hidden`: the data of examples that the client cannot have, None for others.
    """

    def __init__(
        self,
        program: Program,
        refs: TrajectoryRefs,
        request: EvaluateParams,
        batch: Sequence[Example],
        hidden: Sequence[JsonValue],
        *,
        max_result_bytes: int,
        max_bytes: int,
    ) -> None:
        super().__init__(len(batch))
        self._program = program
        self._refs = refs
        self._request = request
        self._meta = request.meta or Meta()
        self._batch = batch
        self._hidden = hidden
        self._results: list[orjson.Fragment | None] = [None] * len(batch)
        self._max_result_bytes = max_result_bytes
        self._max_bytes = max_bytes
        self._bytes = 0
        self._started = time.monotonic()

    @property
    def finished_results(self) -> list[dict[str, JsonValue]]:
        """The results so far, without those for which there was no room."""
        return [
            {"index": index, "result": result}
            for index, result in enumerate(self._results)
            if result is not None and result is not _NO_ROOM
        ]

    async def run(self) -> JsonValue:
        """Return the results in the batch's order; raises `LimitExceeded` if they are too large together."""
        request, group = self._request, self._meta.group

        def keep(position: int, result: ResultDict) -> None:
            report_output(written_by(result), _source(self._meta, self._batch[position]))
            if request.capture_traces:
                result = self._refs.outgoing(result, group, self._hidden[position])
            self._results[position] = self._serialized(result)
            self.left -= 1

        await self._program.evaluate(
            request.candidate,
            self._batch,
            capture_traces=request.capture_traces,
            items=request.items,
            timeout_s=self._meta.example_timeout_s,
            group=group,
            on_result=keep,
        )
        if None in self._results:
            raise RuntimeError("the program ended an evaluation without a result for every example")
        if self._bytes > self._max_bytes:
            raise answer_too_large(self._bytes, self._max_bytes, len(self._batch))
        return {"results": self._results}

    def _serialized(self, result: ResultDict) -> orjson.Fragment:
        """Serialize the result, or a failure if it is too large; null once all together are too large."""
        written = wire.write_to_keep(result)
        if len(written) > self._max_result_bytes:
            written = wire.write(without_output(result, self._max_result_bytes))
        self._bytes += len(written)
        return orjson.Fragment(written) if self._bytes <= self._max_bytes else _NO_ROOM

    def cancelled_result(self) -> JsonValue:
        """Return the results so far, the others `cancelled`."""
        seconds = time.monotonic() - self._started
        cancelled = {"status": "cancelled", "score": None, "output": None, "seconds": seconds}
        return {"results": [cancelled if result is None else result for result in self._results]}


class MethodJob(CallJob):
    """Any other method, which is answered as a whole by `work`; it gets the job, whose `message` it may set."""

    def __init__(self, work: Callable[[CallJob], Awaitable[JsonValue]]) -> None:
        super().__init__()
        self._work = work

    async def run(self) -> JsonValue:
        """Return the answer; raises the errors of the work."""
        answer = await self._work(self)
        self.left = 0
        return answer


_CALL_ID_SHOWN = 8


def _source(meta: Meta, example: Example) -> str:
    """Return the call and the example, to print before what the program wrote."""
    return f"{meta.call_id[:_CALL_ID_SHOWN]} {example.id}" if meta.call_id else example.id


_SCORE_FIELDS = frozenset(
    {"status", "score", "feedback", "component_feedback", "objective_scores", "error", "usage", "seconds"},
)
"""The fields of a scored result that come from the scoring; all others are kept as they came."""

_WAITING = ("rollout", "ok")


class ScoreJob(CallJob):
    """Scores results that wait for a score; failures are returned unchanged."""

    def __init__(
        self, program: Program, batch: Sequence[Example], results: Sequence[ResultDict], meta: Meta | None
    ) -> None:
        self._positions = [at for at, result in enumerate(results) if result["status"] in _WAITING]
        super().__init__(len(results), left=len(self._positions))
        self._program = program
        self._results = list(results)
        self._meta = meta or Meta()
        self._batch = [batch[at] for at in self._positions]

    async def run(self) -> JsonValue:
        """Return the results, in the order they came."""

        def keep(index: int, scored: ResultDict) -> None:
            report_output(written_by(scored), _source(self._meta, self._batch[index]))
            at = self._positions[index]
            self._results[at] = _merge_score(self._results[at], scored)
            self.left -= 1

        waiting = [_without_log(self._results[at]) for at in self._positions]  # the program may give a log of its own
        await self._program.score(self._batch, waiting, timeout_s=self._meta.example_timeout_s, on_result=keep)
        return {"results": self._results}


def _without_log(result: ResultDict) -> ResultDict:
    return {name: value for name, value in result.items() if name != "log"}


def _merge_score(result: ResultDict, scored: ResultDict) -> ResultDict:
    if scored["status"] == "rollout":
        error = {"type": "invalid_result", "message": "score answered a result without a score"}
        scored = {"status": "program_error", "score": None, "error": error, "seconds": scored["seconds"]}
    kept = {name: value for name, value in result.items() if name not in _SCORE_FIELDS and value is not None}
    scoring = {name: value for name, value in scored.items() if name in _SCORE_FIELDS}
    log = kept.pop("log", "") + written_by(scored)
    if log and scoring.get("error"):
        scoring["error"] = {**scoring["error"], "log": log}
    elif log:
        scoring["log"] = log
    return {**scoring, "output": None, **kept}
