"""How often the test rows are scored: once, or as often as the noise of the scores asks."""

import math
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from gepa_client.analysis.statistics.noise import Noise
from gepa_client.journal.entries import TEST_PLAN
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import request_key

MOST = 5
"""Repeats at most."""

SHARE = 0.25
"""Of the variance between rows: noise of a row's mean below it adds at most an eighth to the standard error."""


class Repeats(BaseModel):
    """How often each test row is scored with each candidate, and why, in words."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    count: int
    reason: str


def part_of_test(index: int, repeat: int) -> str:
    """Return the part of the journal that holds a candidate's results on the test rows; repeats are numbered from 0."""
    return f"test-{index}-repeat-{repeat}" if repeat else f"test-{index}"


def plan_part(index: int) -> str:
    """Return the part that holds how often the test rows are scored for the seed and this candidate."""
    return f"test-{index}-plan"


def decide(noise: Noise | None) -> Repeats:
    """Return how often to score the test rows.

    `noise`: of evaluations that the search repeated, None if it repeated none.
    """
    if noise is None:
        return Repeats(count=1, reason="no evaluation was repeated, so no noise is known")
    if noise.deterministic:
        return Repeats(count=1, reason=f"{noise.rows:,} evaluations were repeated, with the same scores")
    asked = math.ceil(noise.within / (SHARE * noise.between)) if noise.between else MOST
    spread = f"{math.sqrt(noise.within):.3g} within rows, {math.sqrt(noise.between):.3g} between them"
    most = f", at most {MOST}" if asked > MOST else ""
    reason = f"{noise.rows:,} repeated evaluations have standard deviations of {spread}: that asks for {asked}{most}"
    return Repeats(count=min(max(asked, 1), MOST), reason=reason)


def recorded_plan(journal: Journal, index: int, decided: Callable[[], Repeats] | None) -> Repeats:
    """Return the recorded decision about the test of a candidate, else record this one.

    `decided`: None in a replay, where nothing is recorded: a test without a decision has no repeats.
    """
    stream = journal.stream(plan_part(index))
    [request] = stream.ask([request_key(TEST_PLAN, f"plan the test of candidate {index}")])
    if request.recorded:
        return Repeats.model_validate(request.answer)
    if decided is None:
        return Repeats(count=1, reason="not recorded")
    [written] = stream.record((request, decided().model_dump()))
    stream.settle()
    return Repeats.model_validate(written)
