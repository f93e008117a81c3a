"""Entries that decide which of the best candidates is the best by fresh rows: the plan, number 0, and the decision, 1.

Fresh rows are validation rows that a search on a sample left out, and training rows that no minibatch had.
"""

from pydantic import BaseModel, ConfigDict


class TiePlan(BaseModel):
    """Which candidates of the pool are compared, by index, on which fresh rows, by GEPA's ids.

    `searched`: requests of the search by then, none of which had these rows.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    candidates: list[int]
    rows: list[int]
    searched: int


class TiedCandidate(BaseModel):
    """A candidate's means: over the validation rows of the search, over the fresh rows, and over all of these rows."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    index: int
    validation: float
    fresh: float
    mean: float


class TieDecision(BaseModel):
    """The candidate with the highest mean over `validation_rows` and `rows` fresh ones; of equal ones the first.

    `validation_rows`: those of the search. `validation_left`: validation rows among the fresh ones.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    best: int
    validation_rows: int
    rows: int
    candidates: list[TiedCandidate]
    validation_left: int = 0


def part_of_ties(pool: int, index: int | None = None, *, dropped: int = 0) -> str:
    """Return the part of the journal that holds the plan and the decision for a pool of so many candidates.

    `index`: the part that holds this candidate's results. `dropped`: how many candidates of the pool users had dropped.
    """
    part = f"ties-{pool}-without-{dropped}" if dropped else f"ties-{pool}"
    return part if index is None else f"{part}-{index}"


def part_of_left_rows(index: int) -> str:
    """Return the part of the journal that holds a candidate's results on validation rows that the search left out.

    It is the same for any size of the pool: a resume that compares the candidate again has these results.
    """
    return f"ties-left-{index}"
