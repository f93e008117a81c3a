"""What the page of a run receives: facts with their place in the journal, one JSON object each.

`at` is a place in the part `search` of the journal: how many of its numbers GEPA had requested. The page at N is the
state by all facts with `at` <= N: what `evolverpc replay --until N` shows. Facts that
are not of the search (`run`, `now`, `spending`, ...) have no `at`; a later one replaces an earlier one of its kind,
unless its class states another rule, or `event_log.KEYS`.
"""

from typing import Annotated, Literal

from pydantic import Field

from gepa_client.analysis.proposals import Excerpt, Outcome
from gepa_client.journal import run_events
from gepa_client.page.moment_events import (
    FailureCounts,
    Notices,
    Now,
    Position,
    Run,
    SpendingSoFar,
    Steer,
    StoreTrouble,
    Summary,
)
from gepa_client.page.page_fact import Part


class Rows(Part):
    """Ids of validation rows from place `start` on, in order; several events give all `total`. Each adds to the others.

    `labels`: the beginning of the first text of each; empty where the row has none or its server did not show it.
    `training`: no validation rows were given, and these are the training rows.
    """

    event: Literal["rows"] = "rows"
    start: int
    ids: list[str]
    labels: list[str]
    total: int
    training: bool


class CodeVersion(Part):
    """The code of a candidate."""

    branch: str | None
    commit: str


class Candidate(Part):
    """A candidate of the pool; a later one of the same `index` replaces it.

    `digest`: the beginning of the digest of its texts. `scores`: by place of the validation row, None if there is
    none. `metric_calls`: GEPA's count when it was found. `found`: ISO 8601, None in runs of before. `cost_usd`: what
    the search was known to have cost by then, None if nothing was priced. Two `parents`: a merge; none: the seed.
    `front`, `best`: of the pool from then on, until a later candidate or `steered`.
    """

    event: Literal["candidate"] = "candidate"
    at: int
    index: int
    digest: str
    parents: list[int]
    iteration: int
    score: float
    metric_calls: int
    found: str | None
    cost_usd: float | None
    scores: list[float | None]
    texts: dict[str, Excerpt]
    code: CodeVersion | None
    front: list[int]
    best: int


ProposalOutcome = Outcome | Literal["pending"]
"""`pending`: it has none. A page shows one of a run that is `complete` as `unfinished`, until it is resumed."""


class Proposal(Part):
    """A proposal of reflection, or a merge; a later one of the same `key` replaces it.

    `at`: where it begins, which details are asked for by. `decided`: where its outcome was known: before that place,
    and if it is None, the proposal is pending. `before`, `after`: sums of scores on its minibatch of `size` examples.
    `digest`: the beginning of the digest of its texts. `candidate`: its index if it was kept. `mutation`: the number of
    its change of code.
    """

    event: Literal["proposal"] = "proposal"
    key: str
    at: int
    decided: int | None
    iteration: int
    parents: list[int]
    components: list[str] = Field(default_factory=list)
    size: int = 0
    before: float | None = None
    after: float | None = None
    outcome: ProposalOutcome
    why: str | None
    candidate: int | None
    digest: str | None = None
    merge: bool = False
    mutation: int | None = None


class Results(Part):
    """Results on validation rows, in columns; each adds to the others, a later one of a cell replaces it.

    A candidate's `scores` come before them. `candidates`: beginnings of digests; `rows`: places of rows; `numbers`: of
    their entries in the journal, so that a result counts from its number + 1 on; `scores`: None for a failure.
    """

    event: Literal["results"] = "results"
    candidates: list[str]
    rows: list[int]
    numbers: list[int]
    scores: list[float | None]


class Mutation(Part):
    """A change of code was made, or rejected at `stage` for `reason`; a later one of the same `at` replaces it.

    `diff`: of what was made, or refused, its beginning if it is long. `log`: the end of the log of a rejected one.
    """

    event: Literal["mutation"] = "mutation"
    at: int
    commit: str | None
    request: Excerpt
    stage: str | None
    reason: Excerpt | None
    files: list[str]
    summary: Excerpt | None
    cost_usd: float | None
    diff: Excerpt | None
    log: Excerpt | None


PageEvent = (
    Run
    | Rows
    | Candidate
    | run_events.ShownDecision
    | Proposal
    | Results
    | Mutation
    | Steer
    | FailureCounts
    | SpendingSoFar
    | Summary
    | Now
    | Notices
    | Position
    | StoreTrouble
)

AnyPageEvent = Annotated[PageEvent, Field(discriminator="event")]
