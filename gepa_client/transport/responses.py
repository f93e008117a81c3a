"""What an HTTP answer means: a result, one of the contract's errors, or something that is no answer at all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from evolverpc_common.exact_values import has_long_integers, loads, readable, with_integers_packed
from gepa_client.errors import AnswerTooLarge, BadResponse, ConnectionLost, data_of
from gepa_client.transport.calls import INCONCLUSIVE
from protocol import EvaluateResult, JsonValue, ScoreResult
from protocol.base import MAX_RESULT_NESTING, is_nested_deeper
from protocol.errors import LimitExceeded, Overloaded, RpcError, Unauthorized

Model = TypeVar("Model", bound=BaseModel)
ExampleResults = EvaluateResult | ScoreResult


@dataclass(frozen=True)
class HttpResponse:
    """One HTTP answer as it came; `body` complete and within the bound."""

    status: int
    retry_after: str
    body: bytes


def validated(model: type[Model], answer: JsonValue) -> Model:
    """Return the answer as the contract's model.

    Raises:
        BadResponse: it does not fit; the first misfit is named with its path.
    """
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        # Not `from error`: as its cause it would list every misfit, however many there are.
        raise BadResponse(f"the answer does not fit {model.__name__} at `{where}`: {first['msg']}") from None


def example_results(model: type[ExampleResults], answer: JsonValue, count: int) -> list[dict[str, Any]]:
    """Return the results of `evaluate` or `score`, as JSON; too large a score becomes a failure of its example.

    Raises:
        BadResponse: the answer does not fit, or has another number of results than `count`.
    """
    given = len(validated(model, answer).results)
    if given != count:
        method = model.__name__.removesuffix("Result").lower()
        raise BadResponse(f"{method} answered {given} results for {count} examples")
    results: Any = answer
    return [_bounded(given) for given in results["results"]]


def is_pending(answer: JsonValue) -> bool:
    """Whether the call is still running: its answer is to be collected."""
    return isinstance(answer, dict) and isinstance(answer.get("pending"), dict)


def result_of(exchange: HttpResponse, request_id: int) -> JsonValue:
    """Return the result inside an HTTP response; raise its error, or what the absence of both means."""
    if 300 <= exchange.status < 400:
        raise BadResponse(f"the server redirects (HTTP {exchange.status}); redirects are not followed")
    message = read(exchange.body)
    if (
        not isinstance(message, dict)
        or message.get("jsonrpc") != "2.0"
        or ("result" in message) == ("error" in message)
    ):
        raise _without_answer(exchange)
    if "error" in message:
        if not isinstance(message["error"], dict):
            raise BadResponse("the answer's `error` is not an object")
        error = RpcError.from_wire(message["error"])
        if known := data_of(error):
            error.add_note(known)  # a traceback shows it; `str` is the server's message alone
        raise error
    if message.get("id") != request_id:
        raise BadResponse(f"the answer is for id {message.get('id')!r}, not {request_id}")
    return message["result"]


def _without_answer(exchange: HttpResponse) -> Exception:
    """Return the error that an HTTP status without a JSON-RPC message means: a proxy usually answers in that case."""
    status = exchange.status
    if status in (401, 403):
        return Unauthorized(f"HTTP {status} without an answer of the server's own")
    if status == 413:
        return LimitExceeded("HTTP 413: the request is too large for something on the way")
    if status == 429:
        after = exchange.retry_after
        return Overloaded(f"HTTP {status}", retry_after_s=float(after) if after.isascii() and after.isdigit() else 1.0)
    if status >= 500:
        return ConnectionLost(f"HTTP {status} without a JSON-RPC answer, as a proxy or another web server sends it")
    return BadResponse(f"HTTP {status} with a body that is no JSON-RPC answer: {exchange.body[:80]!r}")


MAX_ANSWER_NESTING = 220
"""Levels of an answer: a result has at most `MAX_RESULT_NESTING`, and a record may quote one a few levels deeper."""

MAX_NUMBER = 1e15
"""No score, cost, time or count is larger, so that sums of them stay finite, and exact where they are whole."""


def read(body: bytes) -> JsonValue:
    """Return the JSON value in `body`; None if it is not JSON.

    In what is the program's own, integers beyond 2^53 - 1 become markers, or texts where models and people read them.

    Raises:
        BadResponse: it nests deeper than any answer may.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if "depth" not in error.msg:
            return None
        deep = True
    else:
        deep = is_nested_deeper(value, MAX_ANSWER_NESTING)
    if deep:
        raise BadResponse(
            f"the answer nests deeper than {MAX_ANSWER_NESTING} levels; the contract allows a result "
            f"{MAX_RESULT_NESTING}, and has a server answer a deeper one as a failure of its example"
        )
    return _carried(loads(body)) if has_long_integers(body) else value


def _as_texts(value: JsonValue) -> JsonValue:
    return readable(with_integers_packed(value))


def _within_64_bits(value: JsonValue) -> JsonValue:
    """Return the state of a program, which gets it back as it is, with what no journal can hold as texts."""
    if isinstance(value, dict):
        return {name: _within_64_bits(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_within_64_bits(member) for member in value]
    return str(value) if type(value) is int and not -(2**63) <= value < 2**64 else value


_OF_PROGRAM: dict[str, Callable[[JsonValue], JsonValue]] = {
    "output": with_integers_packed,
    "data": with_integers_packed,
    "adapter_state": _within_64_bits,
    "trajectory": _as_texts,
    "dataset": _as_texts,
}
"""Members of answers that hold any JSON, and how large integers in them are kept."""


def _carried(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _OF_PROGRAM.get(name, _carried)(member) for name, member in value.items()}
    return [_carried(member) for member in value] if isinstance(value, list) else value


def _bounded(given: dict[str, Any]) -> dict[str, Any]:
    """Return a result that fits the contract, a failure if its score is beyond `MAX_NUMBER` in size.

    Raises:
        BadResponse: the reported cost of the example is beyond it.
    """
    usage = given.get("usage") or {}
    spent = {"seconds": given["seconds"], "metric_calls": given.get("metric_calls"), **usage}
    for model, taken in (usage.get("models") or {}).items():
        spent |= {f"{name} of {model!r}": amount for name, amount in taken.items()}
    for name, amount in spent.items():
        if _huge(amount):
            raise BadResponse(f"the result of an example reports {amount:g} {name}: the limit is {MAX_NUMBER:g}")
    scores = {"score": given["score"]}
    scores |= {f"objective score {name!r}": value for name, value in (given.get("objective_scores") or {}).items()}
    for name, score in scores.items():
        if _huge(score):
            message = f"its {name} is {score:g}: a score lies between -{MAX_NUMBER:g} and {MAX_NUMBER:g}"
            rest = {key: value for key, value in given.items() if key != "objective_scores"}
            return {**rest, **_failure(given, "ScoreTooLarge", message)}
    return given


def _huge(value: JsonValue) -> bool:
    return isinstance(value, int | float) and abs(value) > MAX_NUMBER


def excess_of(error: AnswerTooLarge | LimitExceeded) -> tuple[int, int] | None:
    """Return the bytes of an answer that was too large as a whole, and the limit; None for another error."""
    if isinstance(error, AnswerTooLarge):
        return error.size, error.accepted
    size, accepted = error.details.get("given"), error.details.get("allowed")
    if error.details.get("limit") != "answer_bytes" or not isinstance(size, int) or not isinstance(accepted, int):
        return None
    return size, accepted


def oversized(excess: tuple[int, int], seconds: float) -> dict[str, Any]:
    """Return the failure in place of a result whose answer was too large; what it cost is not known."""
    message = f"output of {excess[0]} bytes, more than {excess[1]} accepted"
    return {"output": None, "seconds": seconds, **_failure({}, "output_too_large", message)}


def _failure(given: dict[str, Any], kind: str, message: str) -> dict[str, Any]:
    """Return the members of a failed result; an inconclusive result stays inconclusive."""
    status = given.get("status")
    return {
        "status": status if status in INCONCLUSIVE else "program_error",
        "score": None,
        "error": {"type": kind, "message": message},
    }
