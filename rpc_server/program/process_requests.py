"""Requests to a program process, and their outcomes: a response, a time-out, a death or a rejection."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from protocol.errors import CallCancelled, ProgramFailed, RpcError
from rpc_server.program import example_results
from rpc_server.program.example_results import UsageDict
from rpc_server.program.process import Exit
from rpc_server.program.process_output import report_output
from rpc_server.program.program import ResultDict
from rpc_server.program.stdio import LenientMessage, OversizedMessage, UnreadableMessage, find_non_finite

Log = Callable[[], str]
"""Returns what the process wrote while it worked on the request."""

_UNREADABLE = "the answer cannot be read: it is no JSON, or nested too deep"


class ProcessRequest(ABC):
    """One request to a process; `limit_s`: seconds from the moment it is sent.

    Exactly one of `answered`, `timed_out`, `died` and `reject` is called, once, unless it is abandoned before.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s

    @abstractmethod
    def request(self) -> tuple[str, dict[str, Any]]:
        """Return method and params."""

    @abstractmethod
    def answered(self, message: dict[str, Any], *, late: bool, evidence: str | None, seconds: float, log: Log) -> None:
        """Handle the response; `late`: the request took longer than its limit.

        `evidence`: why a time-out is the request's own; None if it did not time out.
        """

    def discard(self, message: dict[str, Any]) -> None:  # noqa: B027  most requests keep nothing of an attempt
        """Handle a response of an attempt that does not count: the request is about to run again."""

    def timed_out(self, evidence: str, seconds: float, log: Log) -> None:
        """Handle a time-out of a process that was killed; `evidence` as for `answered`."""
        self._fail("timeout", "timeout", example_results.timed_out(self.limit_s, evidence), seconds, log)

    def died(self, how: Exit, seconds: float, log: Log) -> None:
        """Handle the second death of a process, in isolation."""
        self._fail("program_error", "process_died", f"the program's process {how}", seconds, log)

    @abstractmethod
    def reject(self, error: RpcError) -> None:
        """Fail it: no process is available."""

    @abstractmethod
    def _fail(self, status: str, kind: str, message: str, seconds: float, log: Log) -> None: ...


class ExamplesRequest(ProcessRequest):
    """A request about one example of a call, or about its whole batch if the program requires it."""

    def __init__(self, call: "ExamplesCall", positions: Sequence[int], *, limit_s: float | None) -> None:
        super().__init__(limit_s)
        self._call = call
        self._positions = positions
        self._spent: dict[int, UsageDict] = {}

    def request(self) -> tuple[str, dict[str, Any]]:
        """Return the call's request for these examples."""
        return self._call.method, self._call.params(self._positions)

    def answered(self, message: dict[str, Any], *, late: bool, evidence: str | None, seconds: float, log: Log) -> None:
        """Give each example its result, or the failure that the response stands for."""
        if late and evidence is not None and not _are_no_scores(message):
            self.discard(message)
            written = "".join(
                example_results.written_by(one) for one in _results(message) or () if isinstance(one, dict)
            )
            self.timed_out(evidence, seconds, (lambda: written) if written else log)
            return
        if "error" in message:
            self._refusal(message["error"], seconds, log)
            return
        if isinstance(message, UnreadableMessage):
            self._fail("program_error", "invalid_result", _UNREADABLE, seconds, log)
            return
        if isinstance(message, OversizedMessage):
            self._oversized(message, seconds, log)
            return
        given = _results(message)
        if given is None or len(given) != len(self._positions):
            described = "no list of results" if given is None else f"{len(given)} results"
            self._fail(
                "program_error", "invalid_result", f"{described} for {len(self._positions)} examples", seconds, log
            )
            return
        lenient = isinstance(message, LenientMessage)
        for position, one in zip(self._positions, given, strict=True):
            self._give(position, _with_evidence(example_results.checked(one, seconds, log, lenient=lenient), evidence))

    def discard(self, message: dict[str, Any]) -> None:
        """Keep the attempt's usage, which is added to that of the attempt that counts."""
        given = _results(message)
        if given is None or len(given) != len(self._positions):
            return
        for position, one in zip(self._positions, given, strict=True):
            self._spent[position] = example_results.summed(self._spent.get(position, {}), example_results.usage_of(one))

    def reject(self, error: RpcError) -> None:
        """Fail the whole call."""
        self._call.fail(error)

    def _refusal(self, given: Any, seconds: float, log: Log) -> None:
        error = _error(given)
        if isinstance(error, CallCancelled):
            for position in self._positions:
                self._give(position, {"status": "cancelled", "score": None, "output": None, "seconds": seconds})
        elif error.retryable:
            self._fail("infra_error", type(error).__name__, error.message, seconds, log)
        elif isinstance(error, ProgramFailed):
            self._call.fail(error)
        else:
            self._call.fail(
                ProgramFailed(error.message, stage=self._call.method, program_error=error.to_wire(), log_tail=log())
            )

    def _oversized(self, message: OversizedMessage, seconds: float, log: Log) -> None:
        """Fail the example; of several, the call, as the size does not show which of them is too large."""
        if len(self._positions) == 1:
            text = example_results.too_large(message.size, self._call.max_result_bytes)
            self._fail("program_error", example_results.TOO_LARGE, text, seconds, log)
        else:
            self._call.fail(example_results.answer_too_large(message.size, message.limit, len(self._positions)))

    def _fail(self, status: str, kind: str, message: str, seconds: float, log: Log) -> None:
        text = log()
        for position in self._positions:
            self._give(position, example_results.failure(status, kind, message, seconds, text))

    def _give(self, position: int, result: ResultDict) -> None:
        spent = self._spent.get(position)
        usage = {"usage": example_results.summed(spent, example_results.usage_of(result))} if spent else {}
        self._call.give(position, {**result, **usage})


class ExamplesCall:
    """An `evaluate` or `score` call, with one result for each example.

    `params(positions)`: the params for the examples at these positions, of `size` in all. `max_result_bytes`: of one
    result, for messages.
    """

    def __init__(
        self,
        method: str,
        size: int,
        params: Callable[[Sequence[int]], dict[str, Any]],
        *,
        on_result: Callable[[int, ResultDict], None],
        max_result_bytes: int,
    ) -> None:
        self.method = method
        self.max_result_bytes = max_result_bytes
        self.params = params
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_result = on_result
        self._left = size

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
        self.done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def request(self) -> tuple[str, dict[str, Any]]:
        """Return the caller's request."""
        return self._method, dict(self._params)

    def answered(self, message: dict[str, Any], *, late: bool, evidence: str | None, seconds: float, log: Log) -> None:
        """Return the result, or the error in it; report what was written meanwhile."""
        report_output(log(), self._method)
        if late and evidence is not None:
            self.timed_out(evidence, seconds, log)
            return
        if "error" in message:
            error = _error(message["error"])
            if isinstance(error, ProgramFailed):
                error.details.setdefault("stage", self._method)
                error.details.setdefault("log_tail", log())
            self.reject(error)
            return
        result = message.get("result")
        if isinstance(message, UnreadableMessage):
            self._failed(_UNREADABLE, log)
        elif isinstance(message, OversizedMessage):
            self._failed(f"answer of {message.size} bytes, more than {message.limit} accepted", log)
        elif not isinstance(result, dict):
            self._failed("the program answered no object", log)
        elif isinstance(message, LenientMessage) and (problem := find_non_finite(result, "result")) is not None:
            self._failed(problem, log)
        elif not self.done.done():
            self.done.set_result(result)

    def reject(self, error: RpcError) -> None:
        """Fail the call with this error."""
        if not self.done.done():
            self.done.set_exception(error)

    def _fail(self, status: str, kind: str, message: str, seconds: float, log: Log) -> None:  # noqa: ARG002  # all are one error
        self._failed(message, log)

    def _failed(self, message: str, log: Log) -> None:
        self.reject(ProgramFailed(message, stage=self._method, log_tail=log()))


def _error(given: Any) -> RpcError:
    return (
        RpcError.from_wire(given) if isinstance(given, dict) else ProgramFailed("the program returned no error object")
    )


def _with_evidence(result: ResultDict, evidence: str | None) -> ResultDict:
    """Return the result; a time-out's message also states why it is the example's own."""
    if result["status"] != "timeout" or evidence is None:
        return result
    error = result["error"]
    return {**result, "error": {**error, "message": f"{error['message']} {evidence}"}}


def _results(message: dict[str, Any]) -> list[Any] | None:
    """Return the results of examples in a response; None if it has no list of them."""
    result = message.get("result")
    given = result.get("results") if isinstance(result, dict) else None
    return given if isinstance(given, list) else None


def timeouts(message: dict[str, Any]) -> list[bool]:
    """Return for each result in a response whether it is a time-out; empty without results."""
    return [isinstance(one, dict) and one.get("status") == "timeout" for one in _results(message) or ()]


def _are_no_scores(message: dict[str, Any]) -> bool:
    """Return whether every result in a response states by itself that the example failed by time or infrastructure."""
    statuses = {one.get("status") if isinstance(one, dict) else None for one in _results(message) or (None,)}
    return statuses <= {"timeout", "infra_error"}


def stated_seconds(message: dict[str, Any], *, cancelled: bool) -> float | None:
    """Return how long the examples of a response ran together, by their results; None if they do not state it.

    `cancelled`: the request was cancelled, so that only a success shows that it had ended before.
    """
    results = [one if isinstance(one, dict) else {} for one in _results(message) or ()]
    if cancelled and any(one.get("status") not in ("ok", "rollout") for one in results):
        return None
    return sum(stated for one in results if isinstance(stated := one.get("seconds"), int | float)) or None
