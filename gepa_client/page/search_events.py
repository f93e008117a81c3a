"""Events of the page about the search: its rows, candidates, proposals and their results."""

from typing import Literal

from gepa_client.analysis.proposals import Excerpt
from gepa_client.journal.run_events import RacedOut
from gepa_client.page.page_fact import Fact, Part


class Rows(Fact):
    """Ids of validation rows from place `start` on, in order; several events give all `total`. Each adds to the others.

    `held_by_server`: the store has only the rows' names, the server has their contents. `training`: no validation rows
    were given, and these are the training rows.
    """

    type: Literal["rows"] = "rows"
    start: int
    ids: list[str]
    total: int
    held_by_server: bool
    training: bool


class CodeVersion(Part):
    """The code of a candidate. `mutation`: the number of the mutation that made it, None for a parent's code."""

    branch: str | None
    commit: str
    mutation: int | None


class Candidate(Fact):
    """A candidate of the pool; a later one of the same `index` replaces it.

    `digest`: the beginning of the digest of its texts. `scores`: by place of the validation row, None if there is
    none. `metric_calls`: GEPA's count when it was found. `found`: ISO 8601, None in runs of before. `cost_usd`: what
    the search was known to have cost by then, None if nothing was priced. Two `parents`: a merge; none: the seed.
    """

    type: Literal["candidate"] = "candidate"
    at: int
    index: int
    digest: str
    parents: list[int]
    iteration: int
    score: float
    metric_calls: int
    found: str | None
    cost_usd: float | None
    objective_scores: dict[str, float] | None
    scores: list[float | None]
    texts: dict[str, Excerpt]
    code: CodeVersion | None


class PoolState(Fact):
    """The pool from `at` on: the candidates on the Pareto front, and the best one. All are kept, by `at`."""

    type: Literal["pool"] = "pool"
    at: int
    front: list[int]
    best: int


class MetricCalls(Fact):
    """The metric calls as GEPA counts them from `at` on. All are kept, by `at`."""

    type: Literal["metric_calls"] = "metric_calls"
    at: int
    metric_calls: int


ProposalOutcome = Literal["pending", "kept", "rejected", "raced_out", "empty", "unfinished"]
"""`empty`: reflection gave no new text, or a merge was not tried. `unfinished`: the run ended before the decision."""


class Proposal(Fact):
    """A proposal of reflection, or a merge; a later one of the same `key` replaces it.

    `at`: where it begins, which details are asked for by. `decided`: where its outcome was known: before that place,
    and if it is None, the proposal is pending. `before`, `after`: sums of scores on its minibatch of `size` examples.
    `digest`: the beginning of the digest of its texts. `candidate`: its index if it was kept. `unchanged`: it has the
    texts of its parent. `mutation`: the number of its change of code.
    """

    type: Literal["proposal"] = "proposal"
    key: str
    at: int
    decided: int | None
    iteration: int | None
    parents: list[int]
    components: list[str]
    size: int
    before: float | None
    after: float | None
    outcome: ProposalOutcome
    why: str | None
    candidate: int | None
    digest: str | None
    unchanged: bool
    merge: bool
    race: RacedOut | None
    mutation: int | None


class Iteration(Fact):
    """An iteration of GEPA that ended without a proposal, and why. All are kept, by `at`."""

    type: Literal["iteration"] = "iteration"
    at: int
    iteration: int
    why: str


class Results(Fact):
    """Results on validation rows, in columns; each adds to the others, a later one of a cell replaces it.

    A candidate's `scores` come before them. `candidates`: beginnings of digests; `rows`: places of rows; `numbers`: of
    their entries in the journal, so that a result counts from its number + 1 on; `scores`: None for a failure.
    """

    type: Literal["results"] = "results"
    candidates: list[str]
    rows: list[int]
    numbers: list[int]
    scores: list[float | None]
    statuses: list[str]


class Reflection(Fact):
    """A prompt for new texts was answered; a later one of the same `at` replaces it.

    `proposal`: the `at` of its proposal, None if that is not known. `component`: None if the program proposed several.
    `again`: why the first answer could not be used, if this is the second one.
    """

    type: Literal["reflection"] = "reflection"
    at: int
    proposal: int | None
    component: str | None
    model: str | None
    again: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    seconds: float | None


class Mutation(Fact):
    """A change of code was made, or rejected at `stage` for `reason`; a later one of the same `at` replaces it."""

    type: Literal["mutation"] = "mutation"
    at: int
    kind: Literal["change_request", "merge"]
    branch: str
    commit: str | None
    parent_commit: str
    request: Excerpt
    location: str | None
    stage: str | None
    reason: str | None
    files: list[str]
    summary: str | None
    cost_usd: float | None


class RaceStanding(Part):
    """A proposal in a race: on `compared` rows its scores differ by `mean`.

    `bound`: over all rows, from above; None if there is none.
    """

    candidate: str
    compared: int
    mean: float
    bound: float | None
    drops: bool


class Race(Fact):
    """A decision of a race. `rows`: how many validation rows its next block has. All are kept, by `at`."""

    type: Literal["race"] = "race"
    at: int
    validation_rows: int
    rows: int
    proposals: list[RaceStanding]
