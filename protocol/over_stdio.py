"""What a program over stdio may leave out, and the server before it states."""

from collections.abc import Mapping
from typing import Any

from protocol.base import CURRENT_VERSION

_SERVER = {"name": "program", "version": "", "language": "", "instance_id": "1"}


def filled_discovery(result: Any, limits: Mapping[str, int]) -> dict[str, Any]:
    """Return the result of `discover` with what the program left out, or gave as null.

    `limits`: what the server states for `max_batch_size` and `max_request_bytes`. Whether the rest fits is not checked.
    """
    given = _completed({"protocol_versions": [CURRENT_VERSION]}, result)
    program = _completed({}, given.get("program"))
    components = [{"name": name} for name in _completed({}, program.get("seed_candidate"))]
    return given | {
        "server": _completed(_SERVER, given.get("server")),
        "program": {"components": components, **program},
        "limits": _completed({"max_concurrency": 1, **limits}, given.get("limits")),
    }


def filled_result(result: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return an example's result with the score of a failure, and scores of `true` and `false` as 1 and 0.

    `seconds`: how long the example ran by the server's clock, for a program that does not state it.
    """
    stated = result.get("seconds")
    filled = {**result, "score": _number(result.get("score")), "seconds": seconds if stated is None else stated}
    objectives = result.get("objective_scores")
    if isinstance(objectives, dict):
        filled["objective_scores"] = {name: _number(score) for name, score in objectives.items()}
    return filled


def _completed(fields: dict[str, Any], given: Any) -> dict[str, Any]:
    """Return the fields, replaced and completed by those of an object that are not null."""
    members = given.items() if isinstance(given, dict) else ()
    return fields | {name: value for name, value in members if value is not None}


def _number(score: Any) -> Any:
    return int(score) if isinstance(score, bool) else score
