"""Whether two servers give the same results on some rows, as far as the noise of the program lets that be seen."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from evolverpc_common.display_text import line

Results = list[dict[str, Any]]
"""`ExampleResult`s of the contract as JSON."""

CHANCE = 1 / 5000
"""How likely noise alone may make two equal servers look different, over all rows that are compared."""

CLOSE = 1e-6
"""Numbers that differ by this share are equal, unless the program is deterministic: machines round differently."""

NUMBERS = re.compile(r"(\d+\.\d+(?:[eE][-+]?\d+)?)")
"""Fractions within a text."""

NO_VERDICT = ("infra_error", "cancelled", "timeout")
"""Statuses that state nothing of the program: a host, or the load of a machine, made them."""

SHOWN, BEFORE = 60, 20
"""Characters of a value in a message; those that are equal in both before the first that differs."""


@dataclass(frozen=True)
class Difference:
    """`what` differs on a row: the value `here`, at the server that is compared, and that at the `first` one."""

    row: str
    what: str
    here: Any
    first: Any

    def __str__(self) -> str:
        here, first = (json.dumps(value, ensure_ascii=False) for value in (self.here, self.first))
        pairs = enumerate(zip(here, first, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(here), len(first)))
        cut = same - BEFORE if same > BEFORE and max(len(here), len(first)) > SHOWN else 0
        shown = [f"{'…' if cut else ''}{line(text[cut:], SHOWN)}" for text in (here, first)]
        return f"row {line(self.row, 40)}: {self.what} {shown[0]} instead of {shown[1]}"


def difference(row: str, first: Results, other: Results, *, exact: bool) -> Difference | None:
    """Return how the results of two servers on a row differ; None if they need not.

    Compared are status, output, scores and feedback, but of failures the status alone, of results of `NO_VERDICT`
    nothing, and no score that another server gives. A value that varies within one of the servers is noise; one that
    does not differs if it is another one at the other server. `exact`: the program is deterministic.
    """
    every = [*first, *other]
    if any(result["status"] in NO_VERDICT for result in every):
        return None
    names = ["output"] if any(result["status"] == "rollout" for result in every) else list(_VALUES)
    for name in ["status", *names]:
        theirs, ours = ([_value(name, result) for result in results] for results in (first, other))
        alike = all(equal(a, b, exact=exact) for values in (theirs, ours) for a, b in pairwise(values))
        if alike and not equal(ours[0], theirs[0], exact=exact):
            return Difference(row, _VALUES.get(name, name), ours[0], theirs[0])
    return None


_VALUES = {
    "output": "output",
    "score": "score",
    "objective_scores": "objective scores",
    "feedback": "feedback",
    "component_feedback": "feedback on components",
}


def _value(name: str, result: Mapping[str, Any]) -> Any:
    if name == "status":
        return "ok" if result["status"] == "rollout" else result["status"]
    return result.get(name) if result["status"] in ("ok", "rollout") else None


def equal(a: object, b: object, *, exact: bool) -> bool:
    """Return whether two JSON values are equal; 1 and 1.0 are, true and 1 are not, and the order of keys is free.

    `exact`: numbers that are `CLOSE` are not equal, also within texts.
    """
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key], exact=exact) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal(x, y, exact=exact) for x, y in zip(a, b, strict=True))
    if not exact and isinstance(a, int | float) and isinstance(b, int | float) and float in (type(a), type(b)):
        return math.isclose(a, b, rel_tol=CLOSE, abs_tol=CLOSE)
    if not exact and isinstance(a, str) and isinstance(b, str):
        parts, others = NUMBERS.split(a), NUMBERS.split(b)
        return parts[::2] == others[::2] and all(map(_close, parts[1::2], others[1::2]))
    return a == b


def _close(a: str, b: str) -> bool:
    return a == b or math.isclose(float(a), float(b), rel_tol=CLOSE, abs_tol=CLOSE)


def is_certain(differing: int, rows: int, evaluations: int) -> bool:
    """Return whether noise is too unlikely to have made `differing` of the rows differ in all evaluations.

    `evaluations`: of each of these rows, at each server. A row on which a program draws its result differs in this way
    with a probability of at most 2 / 4 ** evaluations: that of a coin, all heads at one server and all tails at the
    other.
    """
    return math.comb(rows, differing) * (2 * 0.25**evaluations) ** differing <= CHANCE
