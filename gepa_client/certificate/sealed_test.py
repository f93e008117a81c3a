"""The rules of a run's test: which rows it commits to, and how often each is scored."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from evolverpc_common.display_text import counted
from gepa_client.analysis.power import Noise
from gepa_client.journal.entries import COMMITMENT, TEST_PLAN
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import digest_of, request_key

_MOST_REPEATS = 5
"""Repeats at most."""

_NOISE_SHARE = 0.25
"""Of the variance between rows: noise of a row's mean below it adds at most an eighth to the standard error."""


class Commitment(BaseModel):
    """What is committed to. `digest`: of all that follows, to be published; `rows`: a digest of each row, in order.

    `held`: the digest that the server declares of the split, if it holds the rows: their contents may not be shown.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    digest: str
    rows: list[str]
    held: str | None


def commitment_of(rows: Sequence[dict[str, Any]], held: str | None) -> Commitment:
    """Return the commitment to rows as the journal holds them (`id`, `data`, and `split` if the server holds them)."""
    digests = [digest_of(row) for row in rows]
    return Commitment(digest=digest_of([COMMITMENT, digests, held]), rows=digests, held=held)


def record_commitment(journal: Journal, commitment: Commitment) -> None:
    """Queue the commitment as an entry, unless it is recorded.

    Raises:
        Interrupted: another commitment is recorded.
    """
    stream = journal.stream(COMMITMENT)
    [request] = stream.ask([request_key(COMMITMENT, "commit to the test rows", commitment.digest)])
    if not request.recorded:
        stream.record((request, commitment.model_dump()))


def recorded_commitment(journal: Journal) -> Commitment | None:
    """Return the commitment of a run; None if it has no test rows, or began with a version that made none."""
    entry = journal.storage.read(COMMITMENT, 0)
    return Commitment.model_validate_json(entry.answer) if entry is not None else None


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
        return Repeats(count=1, reason="the search repeated no evaluation, so no noise is known")
    if noise.deterministic:
        again = f"{counted(noise.rows, 'evaluation')} that the search repeated had the same score again"
        return Repeats(count=1, reason=f"{again}, so once is enough")
    asked = math.ceil(noise.within / (_NOISE_SHARE * noise.between)) if noise.between else _MOST_REPEATS
    spread = f"{math.sqrt(noise.within):.3g} within rows, {math.sqrt(noise.between):.3g} between them"
    most = f", at most {_MOST_REPEATS}" if asked > _MOST_REPEATS else ""
    reason = f"{noise.rows:,} repeated evaluations have standard deviations of {spread}: that asks for {asked}{most}"
    return Repeats(count=min(max(asked, 1), _MOST_REPEATS), reason=reason)


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
