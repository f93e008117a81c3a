"""A test of paired differences that may be looked at several times while rows are added."""

from collections.abc import Sequence
from dataclasses import dataclass

STEPS, MOST_STEPS = 32, 128
"""The largest difference of the first look has 32 steps. All differences are rounded to steps, and none counts more
than 128 of them, so that there are few sums to count."""


@dataclass(frozen=True, slots=True)
class Look:
    """The last look. `better`: True or False if the decision is made, None while it is open.

    `chance`: of so large a sum at this look, or a larger one, if the two candidates are alike. `allowed`: the chance up
    to which the decision is for the second candidate.
    """

    rows: int
    better: bool | None
    chance: float
    allowed: float


def last_look(differences: Sequence[float], sizes: Sequence[int], error: float) -> Look:
    """Return the decision about a second candidate, given one difference a row, second minus first.

    There is a look after each of `sizes` rows, growing; `differences` has as many rows as one of them, or fewer than
    the first, and every look before was open. The second candidate is not better once its sum is not above 0, nor if
    the last look is still open. It is better if `chance` is at most `allowed`: what the looks before have left of
    `error`.

    If the candidates are alike, each difference may have had the other sign. The chances are those of all choices of
    signs that would have been open at the looks before, counted by sums. So in all, at most a share `error` of second
    candidates that are alike is found better, for differences of any sizes.

    Sources: Lan and DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70 (1983), for spending the
    error over looks; Fisher, The Design of Experiments (1935), section 21, for the signs.
    """
    first = min(sizes[0], len(differences))
    step = max(map(abs, differences[:first]), default=0.0) / STEPS
    steps = [max(-MOST_STEPS, min(round(each / step), MOST_STEPS)) for each in differences] if step else []
    open_sums, seen, left = {0: 1.0}, 0, error
    for size in [first, *sizes[1:]]:
        for change in map(abs, steps[seen:size]):
            open_sums = _with_either_sign(open_sums, change)
        seen = size
        chance = sum(share for value, share in open_sums.items() if value >= sum(steps[:size]))
        if size == len(differences):
            break
        limit, spent = _limit(open_sums, left)
        open_sums = {value: share for value, share in open_sums.items() if 0 < value < limit}
        left -= spent
    if sum(steps) <= 0:
        return Look(len(differences), False, chance, left)
    better = True if chance <= left else False if len(differences) >= sizes[-1] else None
    return Look(len(differences), better, chance, left)


def _with_either_sign(sums: dict[int, float], change: int) -> dict[int, float]:
    if not change:
        return sums
    changed: dict[int, float] = {}
    for value, share in sums.items():
        for signed in (value + change, value - change):
            changed[signed] = changed.get(signed, 0.0) + share / 2
    return changed


def _limit(sums: dict[int, float], allowed: float) -> tuple[float, float]:
    """Return the least sum above 0 that is found better, infinite if none is, and the chance of that."""
    limit, spent = float("inf"), 0.0
    for value in sorted(sums, reverse=True):
        if value <= 0 or spent + sums[value] > allowed:
            break
        limit, spent = value, spent + sums[value]
    return limit, spent
