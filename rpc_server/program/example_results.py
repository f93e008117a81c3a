"""Results of examples: the program's, checked against the contract, and those that report its failures."""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from protocol import ExampleResult, Usage
from protocol.base import MAX_RESULT_NESTING, is_nested_deeper
from protocol.errors import LimitExceeded
from protocol.over_stdio import filled_result
from rpc_server import wire
from rpc_server.program.program import ResultDict
from rpc_server.wire import first_error

UsageDict = dict[str, Any]
"""The known fields of `protocol.Usage`, as JSON."""

_ALWAYS = frozenset({"status", "score", "output", "seconds"})
_KEPT_WHERE_TOO_LARGE = ("trajectory_ref", "usage", "metric_calls", "hosts")
_FAILED = frozenset({"program_error", "timeout", "infra_error"})


def checked(given: Any, seconds: float, log: Callable[[], str]) -> ResultDict:
    """Return a program's result without absent fields; `invalid_result` if it breaks the contract.

    `seconds`: how long it ran by the server's clock, for a program that does not state it. `log`: what the
    process wrote meanwhile; it becomes the result's `log`, or that of its error, unless the program gives one itself.
    """
    if isinstance(given, dict):
        given = filled_result(given, seconds)
    problem = _problem(given)
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


def answer_too_large(size: int, most: int, examples: int) -> LimitExceeded:
    """Return the error of a call whose result is too large as a whole."""
    message = f"answer of {size} bytes for {examples} examples, more than {most} accepted: evaluate fewer at once"
    return LimitExceeded(message, limit="answer_bytes", allowed=most, given=size)


def without_output(result: ResultDict, most: int) -> ResultDict:
    """Return the failure for a result of more than `most` bytes. Its trajectory stays where it is kept."""
    size = len(wire.write(result.get("output")))
    size = size if size > most else len(wire.write(result))
    kept: ResultDict = {name: result[name] for name in _KEPT_WHERE_TOO_LARGE if name in result}
    log = written_by(result)
    log = log if len(log) <= most else ""
    message = f"output of {size} bytes, more than {most} accepted"
    return {**failure("program_error", "output_too_large", message, result["seconds"], log), **kept}


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


def _problem(given: Any) -> str | None:
    """Describe what is wrong with a result; None if nothing is."""
    if is_nested_deeper(given, MAX_RESULT_NESTING):
        return f"the result is nested more than {MAX_RESULT_NESTING} levels deep"
    try:
        ExampleResult.model_validate(given)
    except ValidationError as error:
        return first_error(error, given)
    return None
