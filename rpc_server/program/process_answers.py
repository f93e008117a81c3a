"""What an attempt of a request came to, and what that is for its caller: results of examples, a result, or an error."""

import asyncio
from typing import Any

from pydantic import ValidationError

from protocol import METHODS
from protocol.errors import CallCancelled, ProgramFailed, RpcError
from rpc_server.program import example_results
from rpc_server.program.child_process import Exit
from rpc_server.program.process_output import BoundedLog, report_output
from rpc_server.program.program import ResultDict
from rpc_server.program.stdio import UnreadableMessage
from rpc_server.wire import first_error
from rpc_server.worker.model_apis import sum_usage


class Attempt:
    """A request that was sent to a process, and how it ended.

    `limit_s`: seconds from the moment it is sent. `call_id`: by which it is cancelled. `log`: what it wrote.
    `is_overdue`: it is past its limit. `timer`: until then, or until its process is ended. `message`: the response;
    without one `exit` is the end of the process, and `failure` the status, the type and the message of what happened.
    `is_late`: it or an example of it was, by the clock or by its own statement. `discarded`: responses to earlier
    attempts.
    """

    def __init__(self, limit_s: float | None, call_id: str, discarded: list[dict[str, Any]]) -> None:
        self.limit_s = limit_s
        self.call_id = call_id
        self.discarded = discarded
        self.is_overdue = False
        self.is_late = False
        self.timer: asyncio.TimerHandle | None = None
        self.message: dict[str, Any] = {}
        self.exit: Exit | None = None
        self.failure: tuple[str, str, str] | None = None
        self.log = BoundedLog()
        self._time = asyncio.get_running_loop().time
        self._sent = self._time()

    @property
    def seconds(self) -> float:
        """Seconds since it was sent."""
        return round(self._time() - self._sent, 6)

    def answered(self, message: dict[str, Any], *, cancels: bool) -> None:
        """Take the response.

        The program's own clock decides if the response states it: a server without processor time reads late what was
        answered in time, and what was late before its own timer. `cancels`: a late request was cancelled, so that only
        a success shows that it had ended before.
        """
        self.message = message
        given = [one if isinstance(one, dict) else {} for one in _results(message) or ()]
        statuses = [one.get("status") for one in given]
        own_s = sum(stated for one in given if isinstance(stated := one.get("seconds"), int | float))
        was_cancelled = self.is_overdue and cancels and any(status not in ("ok", "rollout") for status in statuses)
        if not was_cancelled and own_s and self.limit_s is not None:
            self.is_overdue = min(own_s, self.seconds) > self.limit_s
        self.is_late = self.is_overdue or "timeout" in statuses

    def ended(self, how: Exit, why: str) -> None:
        """Take the end of its process. `why` it was not answered, if that is known."""
        self.exit = how
        self.is_late = self.is_overdue
        status, kind, message = "program_error", "process_died", f"the program's process {how}"
        if self.is_late:
            status, kind, message = "timeout", "timeout", example_results.timed_out(self.limit_s)
        self.failure = status, kind, f"{message}{why and f': {why}'}"


def results_of_examples(attempt: Attempt, size: int, *, stage: str) -> list[ResultDict]:
    """Return the result of each of the request's `size` examples, or the failure that its end stands for.

    The usage of earlier attempts is added to that of this one.

    Raises:
        RpcError: the call fails as a whole.
    """
    results = _results_of_attempt(attempt, size, stage)
    for message in attempt.discarded:
        given = _results(message)
        if given is not None and len(given) == size:
            results = [_with_usage_of(one, earlier) for one, earlier in zip(results, given, strict=True)]
    return results


def _with_usage_of(result: ResultDict, earlier: Any) -> ResultDict:
    spent = example_results.usage_of(earlier)
    return {**result, "usage": sum_usage(spent, example_results.usage_of(result))} if spent else result


def _results_of_attempt(attempt: Attempt, size: int, stage: str) -> list[ResultDict]:
    message, log = attempt.message, attempt.log.text
    given = _results(message)

    def failed(status: str, kind: str, text: str, written: str = "") -> list[ResultDict]:
        return [example_results.failure(status, kind, text, attempt.seconds, written or log())] * size

    if attempt.failure is not None:
        return failed(*attempt.failure)
    if attempt.is_overdue and not _are_no_scores(given):
        attempt.discarded.append(message)
        written = "".join(example_results.written_by(one) for one in given or () if isinstance(one, dict))
        return failed("timeout", "timeout", example_results.timed_out(attempt.limit_s), written)
    if "error" in message:
        error = _error(message["error"])
        if isinstance(error, CallCancelled):
            return [{"status": "cancelled", "score": None, "output": None, "seconds": attempt.seconds}] * size
        if error.retryable:
            return failed("infra_error", type(error).__name__, error.message)
        if isinstance(error, ProgramFailed):
            raise error
        raise ProgramFailed(error.message, stage=stage, program_error=error.to_wire(), log_tail=log())
    if isinstance(message, UnreadableMessage):
        return failed("program_error", "invalid_result", f"the answer {message.problem}")
    if given is None or len(given) != size:
        described = "no list of results" if given is None else f"{len(given)} results"
        return failed("program_error", "invalid_result", f"{described} for {size} examples")
    seconds = attempt.seconds / size
    return [example_results.checked(one, seconds, log) for one in given]


def result_of_method(attempt: Attempt, method: str) -> dict[str, Any]:
    """Return the result of a request that is not about single examples; report what was written meanwhile.

    Raises:
        RpcError: the program's own, or `ProgramFailed` for an end without a result that fits the contract.
    """
    message, log = attempt.message, attempt.log.text()
    report_output(log, method)
    result = message.get("result")
    if attempt.failure is not None:
        problem = attempt.failure[2]
    elif attempt.is_overdue:
        problem = example_results.timed_out(attempt.limit_s)
    elif "error" in message:
        error = _error(message["error"])
        if isinstance(error, ProgramFailed):
            error.details.setdefault("stage", method)
            error.details.setdefault("log_tail", log)
        raise error
    elif isinstance(message, UnreadableMessage):
        problem = f"the answer {message.problem}"
    elif not isinstance(result, dict):
        problem = "the program answered no object"
    elif (fault := _fault(result, method)) is not None:
        problem = f"the answer does not fit the contract: {fault}"
    else:
        return result
    raise ProgramFailed(problem, stage=method, log_tail=log)


def _fault(result: dict[str, Any], method: str) -> str | None:
    """Return the place and the kind of what the contract does not have in the result of a method; None if it fits."""
    model = METHODS[method].result if method in METHODS else None
    try:
        if model is not None:
            model.model_validate(result)
    except ValidationError as error:
        return first_error(error, result)
    return None


def _error(given: Any) -> RpcError:
    return (
        RpcError.from_wire(given) if isinstance(given, dict) else ProgramFailed("the program returned no error object")
    )


def _results(message: dict[str, Any]) -> list[Any] | None:
    """Return the results of examples in a response; None if it has no list of them."""
    result = message.get("result")
    given = result.get("results") if isinstance(result, dict) else None
    return given if isinstance(given, list) else None


def _are_no_scores(given: list[Any] | None) -> bool:
    """Report whether every result states by itself that the example failed by time or infrastructure."""
    statuses = {one.get("status") if isinstance(one, dict) else None for one in given or ()}
    return bool(given) and statuses <= {"timeout", "infra_error"}
