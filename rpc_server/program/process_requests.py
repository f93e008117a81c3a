"""Requests to a program process, and their outcomes: a response, a time-out, a death or a rejection."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from protocol.errors import CallCancelled, ProgramFailed, RpcError
from rpc_server.program import example_results
from rpc_server.program.child_process import Exit
from rpc_server.program.example_results import UsageDict
from rpc_server.program.process_output import BoundedLog, report_output
from rpc_server.program.program import ResultDict
from rpc_server.program.stdio import LenientMessage, OversizedMessage, UnreadableMessage, find_non_finite
from rpc_server.worker.model_usage import sum_usage

if TYPE_CHECKING:
    from rpc_server.program.request_queue import WorkerSlot


class Isolation(IntEnum):
    """What may run beside a request: anything, nothing in its process, or nothing in the pool."""

    NONE = 0
    PROCESS = 1
    POOL = 2


class ProcessRequest(ABC):
    """One request to a process, on its way through the pool; `limit_s`: seconds from the moment it is sent.

    Exactly one of `answered`, `timed_out`, `died` and `reject` is called, once, unless it is abandoned before.

    `abandoned`: no call waits for it. `lost_parent`: while nothing else ran, the process that its own was forked from
    ended. Of its present attempt: `slot`, its process; `call_id`, by which it is cancelled;
    `alone`: its process runs nothing else, not even what is left of an earlier one; `late`: it is past its limit;
    `timer`: its limit; `sent`: when, on the loop's clock; `log`: what it wrote.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s
        self.isolation = Isolation.NONE
        self.abandoned = False
        self.lost_parent = False
        self.slot: WorkerSlot | None = None
        self._loop = asyncio.get_running_loop()

    def begin(self, slot: "WorkerSlot", call_id: str, *, alone: bool) -> None:
        """Begin an attempt."""
        self.slot = slot
        self.call_id = call_id
        self.alone = alone
        self.late = False
        self.timer: asyncio.TimerHandle | None = None
        self.sent = self._loop.time()
        self.log = BoundedLog()

    @property
    def seconds(self) -> float:
        """Seconds since it was sent."""
        return round(self._loop.time() - self.sent, 6)

    def ran_over(self, message: dict[str, Any], *, cancels: bool) -> bool:
        """Report whether the attempt took longer than its limit: by the program's own clock, if the answer states that.

        A server without processor time reads late what was answered in time, and what was late before its own timer.
        `cancels`: a late request was cancelled, so that only a success shows that it had ended before.
        """
        results = [one if isinstance(one, dict) else {} for one in _results(message) or ()]
        own_s = sum(stated for one in results if isinstance(stated := one.get("seconds"), int | float))
        if self.late and cancels and any(one.get("status") not in ("ok", "rollout") for one in results):
            return True
        if not own_s or self.limit_s is None:
            return self.late
        return min(own_s, self.seconds) > self.limit_s

    @abstractmethod
    def request(self) -> tuple[str, dict[str, Any]]:
        """Return method and params."""

    @abstractmethod
    def answered(self, message: dict[str, Any], *, late: bool) -> None:
        """Handle the response; `late`: the request took longer than its limit, alone."""

    def discard(self, message: dict[str, Any]) -> None:  # noqa: B027  most requests keep nothing of an attempt
        """Handle a response of an attempt that does not count: the request is about to run again."""

    def timed_out(self, why: str = "") -> None:
        """Handle the time-out of a request that ran alone; `why` the process did not answer, if that is known."""
        self._fail("timeout", "timeout", f"{example_results.timed_out(self.limit_s)}{why and f': {why}'}")

    def died(self, how: Exit, why: str = "") -> None:
        """Handle the death of the process while nothing else ran."""
        self._fail("program_error", "process_died", f"the program's process {how}{why and f': {why}'}")

    @abstractmethod
    def reject(self, error: RpcError) -> None:
        """Fail it: no process is available."""

    @abstractmethod
    def _fail(self, status: str, kind: str, message: str) -> None: ...


class ExamplesRequest(ProcessRequest):
    """A request about one example of a call, or about its whole batch if the program requires it."""

    def __init__(self, call: "ExamplesCall", positions: Sequence[int], *, limit_s: float | None) -> None:
        super().__init__(limit_s)
        self._call = call
        self._positions = positions
        self._spent: dict[int, UsageDict] = {}

    def request(self) -> tuple[str, dict[str, Any]]:
        """Return the call's request for these examples."""
        call = self._call
        own = {name: [values[position] for position in self._positions] for name, values in call.each.items()}
        return call.method, {**call.shared, **own}

    def answered(self, message: dict[str, Any], *, late: bool) -> None:
        """Give each example its result, or the failure that the response stands for."""
        given = _results(message)
        if late and not _are_no_scores(given):
            self.discard(message)
            written = "".join(example_results.written_by(one) for one in given or () if isinstance(one, dict))
            self._fail("timeout", "timeout", example_results.timed_out(self.limit_s), written)
        elif "error" in message:
            self._refusal(message["error"])
        elif isinstance(message, UnreadableMessage):
            self._fail("program_error", "invalid_result", f"the answer {message.problem}")
        elif isinstance(message, OversizedMessage):
            self._oversized(message)
        elif given is None or len(given) != len(self._positions):
            described = "no list of results" if given is None else f"{len(given)} results"
            self._fail("program_error", "invalid_result", f"{described} for {len(self._positions)} examples")
        else:
            lenient, seconds = isinstance(message, LenientMessage), self.seconds / len(given)
            for position, one in zip(self._positions, given, strict=True):
                self._give(position, example_results.checked(one, seconds, self.log.text, lenient=lenient))

    def discard(self, message: dict[str, Any]) -> None:
        """Keep the attempt's usage, which is added to that of the attempt that counts."""
        given = _results(message)
        if given is None or len(given) != len(self._positions):
            return
        for position, one in zip(self._positions, given, strict=True):
            self._spent[position] = sum_usage(self._spent.get(position, {}), example_results.usage_of(one))

    def reject(self, error: RpcError) -> None:
        """Fail the whole call."""
        self._call.fail(error)

    def _refusal(self, given: Any) -> None:
        error = _error(given)
        if isinstance(error, CallCancelled):
            for position in self._positions:
                self._give(position, {"status": "cancelled", "score": None, "output": None, "seconds": self.seconds})
        elif error.retryable:
            self._fail("infra_error", type(error).__name__, error.message)
        elif isinstance(error, ProgramFailed):
            self._call.fail(error)
        else:
            wire, log = error.to_wire(), self.log.text()
            self._call.fail(ProgramFailed(error.message, stage=self._call.method, program_error=wire, log_tail=log))

    def _oversized(self, message: OversizedMessage) -> None:
        """Fail the example; of several, the call, as the size does not show which of them is too large."""
        if len(self._positions) == 1:
            text = example_results.too_large(message.size, self._call.max_result_bytes)
            self._fail("program_error", example_results.TOO_LARGE, text)
        else:
            self._call.fail(example_results.answer_too_large(message.size, message.limit, len(self._positions)))

    def _fail(self, status: str, kind: str, message: str, written: str = "") -> None:
        result = example_results.failure(status, kind, message, self.seconds, written or self.log.text())
        for position in self._positions:
            self._give(position, result)

    def _give(self, position: int, result: ResultDict) -> None:
        spent = self._spent.get(position)
        usage = {"usage": sum_usage(spent, example_results.usage_of(result))} if spent else {}
        self._call.give(position, {**result, **usage})


class ExamplesCall:
    """An `evaluate` or `score` call, with one result for each example.

    `shared`: params of all examples; `each`: params with a value for each example. `max_result_bytes`: of one result,
    for messages.
    """

    def __init__(
        self,
        method: str,
        shared: Mapping[str, Any],
        each: Mapping[str, Sequence[Any]],
        *,
        on_result: Callable[[int, ResultDict], None],
        max_result_bytes: int,
    ) -> None:
        self.method = method
        self.max_result_bytes = max_result_bytes
        self.shared = shared
        self.each = each
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_result = on_result
        self._left = len(each["batch"])

    def give(self, position: int, result: ResultDict) -> None:
        """Record the result of one example."""
        if self.done.done():
            return
        self._on_result(position, result)
        self._left -= 1
        if self._left == 0:
            self.done.set_result(None)

    def fail(self, error: RpcError) -> None:
        """Fail the call as a whole."""
        if not self.done.done():
            self.done.set_exception(error)


class MethodRequest(ProcessRequest):
    """A request that is not about single examples: its result or error is the caller's."""

    def __init__(self, method: str, params: Mapping[str, Any], *, limit_s: float | None) -> None:
        super().__init__(limit_s)
        self._method = method
        self._params = params
        self.done: asyncio.Future[dict[str, Any]] = self._loop.create_future()

    def request(self) -> tuple[str, dict[str, Any]]:
        """Return the caller's request."""
        return self._method, dict(self._params)

    def answered(self, message: dict[str, Any], *, late: bool) -> None:
        """Return the result, or the error in it; report what was written meanwhile."""
        report_output(self.log.text(), self._method)
        result = message.get("result")
        if late:
            self.timed_out()
        elif "error" in message:
            error = _error(message["error"])
            if isinstance(error, ProgramFailed):
                error.details.setdefault("stage", self._method)
                error.details.setdefault("log_tail", self.log.text())
            self.reject(error)
        elif isinstance(message, UnreadableMessage):
            self._failed(f"the answer {message.problem}")
        elif isinstance(message, OversizedMessage):
            self._failed(f"answer of {message.size} bytes, more than {message.limit} accepted")
        elif not isinstance(result, dict):
            self._failed("the program answered no object")
        elif isinstance(message, LenientMessage) and (problem := find_non_finite(result, "result")) is not None:
            self._failed(problem)
        elif not self.done.done():
            self.done.set_result(result)

    def reject(self, error: RpcError) -> None:
        """Fail the call with this error."""
        if not self.done.done():
            self.done.set_exception(error)

    def _fail(self, status: str, kind: str, message: str) -> None:  # noqa: ARG002  # all are one error
        self._failed(message)

    def _failed(self, message: str) -> None:
        self.reject(ProgramFailed(message, stage=self._method, log_tail=self.log.text()))


def _error(given: Any) -> RpcError:
    return (
        RpcError.from_wire(given) if isinstance(given, dict) else ProgramFailed("the program returned no error object")
    )


def _results(message: dict[str, Any]) -> list[Any] | None:
    """Return the results of examples in a response; None if it has no list of them."""
    result = message.get("result")
    given = result.get("results") if isinstance(result, dict) else None
    return given if isinstance(given, list) else None


def _statuses(given: list[Any] | None) -> list[Any]:
    return [one.get("status") if isinstance(one, dict) else None for one in given or ()]


def states_timeout(message: dict[str, Any]) -> bool:
    """Report whether a result in a response is a time-out."""
    return "timeout" in _statuses(_results(message))


def _are_no_scores(given: list[Any] | None) -> bool:
    """Report whether every result states by itself that the example failed by time or infrastructure."""
    return bool(given) and {*_statuses(given)} <= {"timeout", "infra_error"}
