"""The forms a score may take: a number, a number with feedback, or a mapping with score, feedback and objectives."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .encode import dotted
from .failures import InvalidResult

_KEYS = ("score", "feedback", "objective_scores")


class Score(NamedTuple):
    """A finite score with what came along."""

    score: float
    feedback: str | None
    objective_scores: dict[str, float] | None


def read(value: Any) -> Score:
    """What `score()` returned.

    Raises:
        InvalidResult: naming what is wrong.
    """
    if isinstance(value, dict):
        unknown = sorted(str(key) for key in value if key not in _KEYS)
        if unknown:
            raise InvalidResult("score() returned unknown keys %s; it may have %s" % (unknown, ", ".join(_KEYS)))
        if "score" not in value:
            raise InvalidResult("score is missing from the mapping that score() returned")
        return _made(value["score"], value.get("feedback"), value.get("objective_scores"))
    if isinstance(value, tuple):
        if not 1 <= len(value) <= len(_KEYS):
            raise InvalidResult("score() returned a tuple of %d; (number, feedback) is meant" % len(value))
        return _made(*value)
    return _made(value)


def _made(score: Any, feedback: Any = None, objectives: Any = None) -> Score:
    if feedback is not None and not isinstance(feedback, str):
        raise InvalidResult("feedback is a %s; it must be text" % dotted(type(feedback)))
    if objectives is not None and not isinstance(objectives, dict):
        raise InvalidResult("objective_scores is a %s; it must be a mapping" % dotted(type(objectives)))
    return Score(
        number(score, "score"),
        feedback,
        {str(name): number(part, "objective_scores.%s" % name) for name, part in objectives.items()}
        if objectives
        else None,
    )


def number(value: Any, name: str) -> float:
    """A finite float from anything that is a number, numpy's and the like included.

    Raises:
        InvalidResult: it is missing, no number, NaN or infinite.
    """
    if value is None:
        raise InvalidResult("%s is missing (None)" % name)
    if isinstance(value, str):
        raise InvalidResult("%s is a string (%.100r), not a number" % (name, value))
    if not hasattr(type(value), "__float__"):
        raise InvalidResult("%s is a %s, not a number" % (name, dotted(type(value))))
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidResult("%s is no number: %s" % (name, error)) from None
    if not math.isfinite(result):
        raise InvalidResult("%s is %s" % (name, "NaN" if math.isnan(result) else "infinite"))
    return result
