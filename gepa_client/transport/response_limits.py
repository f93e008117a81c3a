"""Answers that fit the contract but cannot be kept: nested beyond what is written, numbers beyond what adds up."""

import re
from collections.abc import Sequence
from typing import Any

import orjson

from evolverpc_common.json_bounds import MAX_READABLE_NESTING, MAX_RESULT_NESTING, is_nested_deeper
from gepa_client.errors import AnswerTooLarge, BadResponse
from protocol import JsonValue, Usage
from protocol.errors import LimitExceeded

MAX_ANSWER_NESTING = 220
"""Levels of the answer to any other call: a record may quote a result, which puts a few levels around it."""

MAX_NUMBER = 1e15
"""No score, cost, time or count is larger, so that sums of them stay finite, and exact where they are whole."""

_AROUND_RESULT = 3  # the message, its `result`, the list of results
_ORDINARY = MAX_RESULT_NESTING + _AROUND_RESULT
_BEFORE = b"[" * (MAX_READABLE_NESTING - _ORDINARY)
_AFTER = b"]" * (MAX_READABLE_NESTING - _ORDINARY)
_CUT_AT = MAX_ANSWER_NESTING + 10  # still too deep after the cut

# A string may lack its end: each byte is looked at once, whatever the body is.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)

_NO_VERDICT = ("infra_error", "cancelled")


def read(body: bytes) -> tuple[JsonValue, bool]:
    """The JSON value in `body`, and whether it nests deeper than a message whose results are all of bearable depth.

    What no reader would take for its depth is cut off, far below the depth that is borne.

    Raises:
        orjson.JSONDecodeError: it is not JSON.
    """
    if _opens_at_most(_ORDINARY, body):
        return orjson.loads(body), False
    # Within as many arrays as leave it the levels it may have, its reading is the check: it costs no second pass.
    try:
        value = orjson.loads(b"%b%b%b" % (_BEFORE, body, _AFTER))
    except orjson.JSONDecodeError:
        pass
    else:
        if (inner := _unwrapped(value)) is not None:
            return inner[0], False
    try:
        return orjson.loads(body), True
    except orjson.JSONDecodeError as error:
        if "depth" not in error.msg:
            raise
    return orjson.loads(_cut(body)), True


def _opens_at_most(count: int, body: bytes) -> bool:
    """Whether so few brackets open, also within strings; `find` runs ten times as fast as `bytes.count`."""
    for bracket in (b"[", b"{"):
        at = body.find(bracket)
        while at >= 0:
            if count == 0:
                return False
            count -= 1
            at = body.find(bracket, at + 1)
    return True


def _unwrapped(value: Any) -> list[Any] | None:
    """The innermost of the arrays around the value; None where the body closed one of them, and so is not JSON."""
    for _ in range(len(_BEFORE) - 1):
        if len(value) != 1:
            return None
        value = value[0]
    return value if len(value) == 1 else None


def _cut(body: bytes) -> bytes:
    """The body with null for whatever is deeper than `_CUT_AT` levels."""
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(body):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == _CUT_AT + 1:
                kept += body[start : token.start()], b"null"
        elif token[0] in (b"]", b"}"):
            if depth == _CUT_AT + 1:
                start = token.end()
            depth -= 1
    if depth == 0:
        kept.append(body[start:])
    return b"".join(kept)


def shallow(answer: JsonValue) -> JsonValue:
    """An answer that nests deep, with a failure in the place of each example's result that nests too deep.

    Raises:
        BadResponse: it is not the results of examples that nest too deep.
    """
    if isinstance(answer, dict) and isinstance(answer.get("results"), list):
        results = [
            _too_deep(given) if is_nested_deeper(given, MAX_RESULT_NESTING) else given for given in answer["results"]
        ]
        answer = {**answer, "results": results}
    if is_nested_deeper(answer, MAX_ANSWER_NESTING):
        raise BadResponse(f"the answer nests deeper than {MAX_ANSWER_NESTING} levels")
    return answer


def _too_deep(given: JsonValue) -> dict[str, Any]:
    """Without whatever might be deep; what it cost stays."""
    if not isinstance(given, dict):
        raise BadResponse("the result of an example is no object")
    kept = {name: given[name] for name in ("metric_calls", "seconds") if name in given}
    if isinstance(usage := given.get("usage"), dict):
        kept["usage"] = {name: usage[name] for name in Usage.model_fields if name in usage and name != "models"}
    message = f"its output nests deeper than {MAX_RESULT_NESTING} levels"
    return {"output": None, **kept, **_failure(given, "ResultTooDeep", message)}


def bounded(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results that fit the contract, with a failure in the place of a score whose size is beyond `MAX_NUMBER`.

    Raises:
        BadResponse: what an example is said to have cost is beyond it.
    """
    return [_bounded(given) for given in results]


def _bounded(given: dict[str, Any]) -> dict[str, Any]:
    usage = given.get("usage") or {}
    spent = {"seconds": given["seconds"], "metric_calls": given.get("metric_calls"), **usage}
    for model, taken in (usage.get("models") or {}).items():
        spent |= {f"{name} of {model!r}": amount for name, amount in taken.items()}
    for name, amount in spent.items():
        if _huge(amount):
            raise BadResponse(f"the result of an example says {amount:g} {name}: more than {MAX_NUMBER:g} is no amount")
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
    """The bytes of an answer that was too large as a whole, and how many are accepted; None where it was not that."""
    if isinstance(error, AnswerTooLarge):
        return error.size, error.accepted
    size, accepted = error.details.get("given"), error.details.get("allowed")
    if error.details.get("limit") != "answer_bytes" or not isinstance(size, int) or not isinstance(accepted, int):
        return None
    return size, accepted


def oversized(excess: tuple[int, int], seconds: float) -> dict[str, Any]:
    """The failure in the place of a result whose answer was too large; what it cost is not known."""
    message = f"output of {excess[0]} bytes, more than {excess[1]} accepted"
    return {"output": None, "seconds": seconds, **_failure({}, "output_too_large", message)}


def _failure(given: dict[str, Any], kind: str, message: str) -> dict[str, Any]:
    """The members of a result that say that there is none; nobody's verdict does not become one by it."""
    status = given.get("status")
    return {
        "status": status if status in _NO_VERDICT else "program_error",
        "score": None,
        "error": {"type": kind, "message": message},
    }
