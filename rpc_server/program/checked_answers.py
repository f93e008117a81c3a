"""What an attempt of a request came to, and the result, checked against the contract, or the error that it is."""

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError

from protocol import METHODS, ExampleResult, Usage
from protocol.base import MAX_RESULT_NESTING, is_nested_deeper
from protocol.errors import CallCancelled, ProgramFailed, RpcError
from protocol.over_stdio import filled_result
from rpc_server.program.child_process import Exit
from rpc_server.program.process import BoundedLog, report_output
from rpc_server.program.program import ResultDict
from rpc_server.program.stdio import UnreadableMessage
from rpc_server.wire import first_error
from rpc_server.worker.model_apis import sum_usage

UsageDict = dict[str, Any]
"""The known fields of `protocol.Usage`, as JSON."""

_ALWAYS = frozenset({"status", "score", "output", "seconds"})
_FAILED = frozenset({"program_error", "timeout", "infra_error"})


def checked(given: Any, seconds: float, log: Callable[[], str]) -> ResultDict:
    """Return a program's result without absent fields; `invalid_result` if it breaks the contract.

    `seconds`: how long it ran by the server's clock, for a program that does not state it. `log`: what the
    process wrote meanwhile; it becomes the result's `log`, or that of its error, unless the program gives one itself.
    """
    if isinstance(given, dict):
        given = filled_result(given, seconds)
    if is_nested_deeper(given, MAX_RESULT_NESTING):
        problem: str | None = f"the result is nested more than {MAX_RESULT_NESTING} levels deep"
    else:
        problem = _fault(ExampleResult, given)
    if problem is not None:
        return failure("program_error", "invalid_result", problem, seconds, log())
    result = {name: value for name, value in given.items() if value is not None or name in _ALWAYS}
    result.setdefault("output", None)
    text = result.pop("log", None)
    if result["status"] in _FAILED:
        error = result.get("error") or {"type": result["status"], "message": "the program gave no reason"}
        text = text or error.get("log") or log()
        result["error"] = {**error, "log": text} if text else error
    elif text := text or log():
        result["log"] = text
    return result


def failure(status: str, kind: str, message: str, seconds: float, log: str) -> ResultDict:
    """Return a result without a score."""
    error = {"type": kind, "message": message}
    if log:
        error["log"] = log
    return {"status": status, "score": None, "output": None, "error": error, "seconds": seconds}


def timed_out(limit_s: float | None) -> str:
    """Return the message of a time-out."""
    return f"ran longer than {limit_s:g} s"


def written_by(result: ResultDict) -> str:
    """Return what the program wrote to stdout and stderr during the example."""
    return result.get("log") or (result.get("error") or {}).get("log") or ""


def usage_of(given: Any) -> UsageDict:
    """Return the usage that a result states; empty if it states none, or none that fits the contract."""
    try:
        usage = Usage.model_validate(given.get("usage") if isinstance(given, dict) else None)
    except ValidationError:
        return {}
    return usage.model_dump(exclude_none=True)


def _fault(model: type[BaseModel] | None, given: Any) -> str | None:
    """Return where and how a value does not fit a model of the contract; None if it fits, or if `model` is None."""
    try:
        if model is not None:
            model.model_validate(given)
    except ValidationError as error:
        return first_error(error, given)
    return None


class Attempt:
    """A request that was sent to a process, and how it ended.

    `limit_s`: seconds from the moment it is sent. `call_id`: by which it is cancelled. `log`: what it wrote.
    `is_overdue`: it is past its limit. `message`: the response; without one `exit` is the end of the process, and
    `failure` the status, the type and the message of what happened. `is_late`: it or an example of it was, by the clock
    or by its own statement. `discarded`: responses to earlier attempts.
    """

    def __init__(self, limit_s: float | None, call_id: str, discarded: list[dict[str, Any]]) -> None:
        self.limit_s = limit_s
        self.call_id = call_id
        self.discarded = discarded
        self.is_overdue = False
        self.is_late = False
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
            status, kind, message = "timeout", "timeout", timed_out(self.limit_s)
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
    spent = usage_of(earlier)
    return {**result, "usage": sum_usage(spent, usage_of(result))} if spent else result


def _results_of_attempt(attempt: Attempt, size: int, stage: str) -> list[ResultDict]:
    message, log = attempt.message, attempt.log.text
    given = _results(message)

    def failed(status: str, kind: str, text: str, written: str = "") -> list[ResultDict]:
        return [failure(status, kind, text, attempt.seconds, written or log())] * size

    if attempt.failure is not None:
        return failed(*attempt.failure)
    statuses = {one.get("status") if isinstance(one, dict) else None for one in given or ()}
    are_no_scores = bool(statuses) and statuses <= {"timeout", "infra_error"}
    if attempt.is_overdue and not are_no_scores:
        attempt.discarded.append(message)
        written = "".join(written_by(one) for one in given or () if isinstance(one, dict))
        return failed("timeout", "timeout", timed_out(attempt.limit_s), written)
    if "error" in message:
        error = error_of(message["error"])
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
    return [checked(one, seconds, log) for one in given]


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
        problem = timed_out(attempt.limit_s)
    elif "error" in message:
        error = error_of(message["error"])
        if isinstance(error, ProgramFailed):
            error.details.setdefault("stage", method)
            error.details.setdefault("log_tail", log)
        raise error
    elif isinstance(message, UnreadableMessage):
        problem = f"the answer {message.problem}"
    elif not isinstance(result, dict):
        problem = "the program answered no object"
    elif (fault := _fault(METHODS[method].result if method in METHODS else None, result)) is not None:
        problem = f"the answer does not fit the contract: {fault}"
    else:
        return result
    raise ProgramFailed(problem, stage=method, log_tail=log)


def error_of(given: Any) -> RpcError:
    """Return the error that a response holds."""
    return (
        RpcError.from_wire(given) if isinstance(given, dict) else ProgramFailed("the program returned no error object")
    )


def _results(message: dict[str, Any]) -> list[Any] | None:
    """Return the results of examples in a response; None if it has no list of them."""
    result = message.get("result")
    given = result.get("results") if isinstance(result, dict) else None
    return given if isinstance(given, list) else None
