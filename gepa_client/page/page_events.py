"""What the page of a run receives: facts with their place in the journal, one JSON object each.

`at` is a place in the part `search` of the journal: how many of its numbers GEPA had requested. The page at N is the
state by all facts with `at` <= N, in any order of arrival: what `gepa-client replay --until N` shows. Facts that
are not of the search (`run`, `now`, `spending`, ...) have no `at`; a later one replaces an earlier one of its `type`,
unless its class states another rule.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gepa_client.journal.run_events import CopiedExample, FailureGroup, ModelTally, PhaseName, RacedOut
from gepa_client.journal.tie_entries import TiedCandidate

TEXT_SENT = 20_000
"""Characters of a text that events hold; of a longer one they hold the first `TEXT_BEGINNING`."""

TEXT_BEGINNING = 2_000


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", defer_build=True)


class _PageEvent(_Part):
    id: int = 0
    """From 0 in the order of this server; given when the event is added to a log."""


class SentText(_Part):
    """The beginning of a text. `omitted`: characters that are left out; `text` of the server's interface has them."""

    text: str
    omitted: int = 0


class CommandHint(_Part):
    """A command that a user may type next, and what it does."""

    command: str
    what: str


class ParentRun(_Part):
    """The run that this one was forked from, and the number from which on it is another run."""

    run: str
    at: int | None


class Run(_PageEvent):
    """The record of the run. `settings`: without secrets. `budget`: metric calls, None without that limit.

    `splits`: rows by split. `front_type`: GEPA's `frontier_type`. `driver`: the driving process in words; `driven`: it
    holds the lease. Times are ISO 8601 in UTC. `reflection_model`: None if the program proposes.
    """

    type: Literal["run"] = "run"
    run_id: str
    name: str | None
    status: str
    reason: str | None
    program: str | None
    program_version: str | None
    created: str
    started: str | None
    completed: str | None
    settings: dict[str, JsonValue]
    budget: int | None
    components: list[str]
    splits: dict[str, int]
    objectives: list[str]
    front_type: str
    evolve: Literal["code", "prompts", "both"]
    reflection_model: str | None
    output: str | None
    parent: ParentRun | None
    driver: str | None
    driven: bool
    store: str
    commands: list[CommandHint]


class Rows(_PageEvent):
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


class CodeVersion(_Part):
    """The code of a candidate. `mutation`: the number of the mutation that made it, None for a parent's code."""

    branch: str | None
    commit: str
    mutation: int | None


class Candidate(_PageEvent):
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
    texts: dict[str, SentText]
    code: CodeVersion | None


class Pool(_PageEvent):
    """The pool from `at` on: the candidates on the Pareto front, and the best one. All are kept, by `at`."""

    type: Literal["pool"] = "pool"
    at: int
    front: list[int]
    best: int


class MetricCalls(_PageEvent):
    """The metric calls as GEPA counts them from `at` on. All are kept, by `at`."""

    type: Literal["metric_calls"] = "metric_calls"
    at: int
    metric_calls: int


ProposalOutcome = Literal["pending", "kept", "rejected", "raced_out", "empty", "unfinished"]
"""`empty`: reflection gave no new text, or a merge was not tried. `unfinished`: the run ended before the decision."""


class Proposal(_PageEvent):
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


class Iteration(_PageEvent):
    """An iteration of GEPA that ended without a proposal, and why. All are kept, by `at`."""

    type: Literal["iteration"] = "iteration"
    at: int
    iteration: int
    why: str


class Results(_PageEvent):
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


class Reflection(_PageEvent):
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


class Mutation(_PageEvent):
    """A change of code was made, or rejected at `stage` for `reason`; a later one of the same `at` replaces it."""

    type: Literal["mutation"] = "mutation"
    at: int
    kind: Literal["change_request", "merge"]
    branch: str
    commit: str | None
    parent_commit: str
    request: SentText
    location: str | None
    stage: str | None
    reason: str | None
    files: list[str]
    summary: str | None
    cost_usd: float | None


class RaceStanding(_Part):
    """A proposal in a race: on `compared` rows its scores differ by `mean`.

    `bound`: over all rows, from above; None if there is none.
    """

    candidate: str
    compared: int
    mean: float
    bound: float | None
    drops: bool


class Race(_PageEvent):
    """A decision of a race. `rows`: how many validation rows its next block has. All are kept, by `at`."""

    type: Literal["race"] = "race"
    at: int
    validation_rows: int
    rows: int
    proposals: list[RaceStanding]


class Steer(_PageEvent):
    """What a user asked of the run. All are kept, by `key`. `at`: where it was taken, None if it was not.

    `detail`: the action as it was posted. `outcome`: `taken`, or `refused` with the reason; None while it waits.
    """

    type: Literal["steer"] = "steer"
    key: str
    at: int | None
    action: str
    requested: str | None
    by: str | None
    detail: dict[str, JsonValue]
    outcome: str | None


class RunWarning(_PageEvent):
    """Something to know of; the run continued. All are kept, by `message`."""

    type: Literal["warning"] = "warning"
    at: int | None
    message: str


class Failures(_PageEvent):
    """Examples that failed in the program: `failed` of `evaluated`, by type, the most frequent first.

    `cells`: places of the validation rows on which a candidate failed, by the beginning of its digest.
    """

    type: Literal["failures"] = "failures"
    failed: int
    evaluated: int
    groups: list[FailureGroup]
    cells: dict[str, list[int]]


class KindSpending(_Part):
    """What attempts of one kind cost: `evaluate`, `completion`, ... `unpriced`: results without a price.

    `unreported`: those of them that came without any usage.
    """

    kind: str
    calls: int
    examples: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    seconds: float
    unpriced: int
    unreported: int


class SpendingSoFar(_PageEvent):
    """What the run spent, by kind, and through a gateway by model. `refused`: calls that the gateway refused."""

    type: Literal["spending"] = "spending"
    cost_usd: float
    unpriced: int
    unreported: int
    kinds: list[KindSpending]
    models: dict[str, ModelTally]
    refused: int


class Sealed(_PageEvent):
    """The test rows were committed to before the first iteration."""

    type: Literal["sealed"] = "sealed"
    rows: int
    digest: str


class Ties(_PageEvent):
    """Best candidates that tied were compared on `rows` further training rows; `best` is the best of the run."""

    type: Literal["ties"] = "ties"
    best: int
    rows: int
    validation_rows: int
    candidates: list[TiedCandidate]


class Tested(_PageEvent):
    """A candidate's mean score on the test rows, each scored `repeats` times; replaces an earlier one of its."""

    type: Literal["tested"] = "tested"
    candidate: int
    score: float
    rows: int
    repeats: int


class CertificateFound(_PageEvent):
    """The certificate, or in `none` why there is none; then all other members are None.

    `low` to `high`: the interval of the mean `difference` per row at `confidence`.
    """

    type: Literal["certificate"] = "certificate"
    none: str | None
    verdict: Literal["improved", "no difference", "worse"] | None
    statement: str | None
    candidate: int | None
    rows: int | None
    repeats: int | None
    seed: float | None
    best: float | None
    difference: float | None
    low: float | None
    high: float | None
    confidence: float | None
    p_value: float | None
    validation_estimate: float | None
    validation_low: float | None
    validation_high: float | None


class LeakFound(_Part):
    """A text of a row in a component of the best candidate. `line`: where it begins, from 1."""

    split: str
    row: str
    component: str
    line: int
    words: int
    verbatim: bool
    answer: bool


class LeaksFound(_PageEvent):
    """Texts of validation and test rows in the best candidate. `searched`: rows by split; `rows`: how many leak."""

    type: Literal["leaks"] = "leaks"
    searched: dict[str, int]
    rows: int
    listed: list[LeakFound]


class Copied(_PageEvent):
    """What candidates copied from training rows: `count` parts, the longest first."""

    type: Literal["copied_examples"] = "copied_examples"
    count: int
    candidates: list[int]
    copies: list[CopiedExample]


class Stopped(_PageEvent):
    """A limit on money or time ended the search at this place; gone if the run is resumed (`reason` None)."""

    type: Literal["stop"] = "stop"
    at: int
    status: str | None
    reason: str | None


class FinishedRun(_PageEvent):
    """The run has ended for now; None in `status` if it was resumed."""

    type: Literal["finished"] = "finished"
    status: str | None
    reason: str | None
    completed: str | None
    active_seconds: float | None


class StatedFact(_Part):
    """A fact in words."""

    label: str
    text: str


class SummaryTable(_Part):
    """A table; each row begins with a name."""

    heading: str
    columns: list[str]
    rows: list[list[str]]


class FailedStep(_Part):
    """A step of an iteration that failed, with its message and details."""

    iteration: int
    step: str
    text: SentText


class Summary(_PageEvent):
    """What a run came to; of a run that is driven again, what it had come to.

    `story`: sentences. `certificate`: what it states, or why there is none. `no_improvement`: why a run did not
    improve, with what to try; empty for other runs. `settings`: those that differ from their defaults.
    """

    type: Literal["summary"] = "summary"
    story: list[str]
    certificate: list[StatedFact]
    no_improvement: list[StatedFact]
    facts: list[StatedFact]
    settings: dict[str, JsonValue]
    tables: list[SummaryTable]
    failed_steps: list[FailedStep]


class EndpointNow(_Part):
    """An endpoint. `state`: `up`, `resting`, `refused` or `left`; `in_flight`: None if it is not known."""

    name: str
    state: str
    slots: int | None
    in_flight: int | None
    detail: str | None


class LongInFlight(_Part):
    """An example in flight. `row`, `candidate`: as `FailureGroup` has them. `limit_s`: when the server ends it."""

    row: str
    candidate: str
    seconds: float
    limit_s: float | None


class Forecast(_Part):
    """What the run will have used when its budget ends, at the present rate. `limit`: which setting ends it first."""

    limit: str
    seconds_left: float
    cost_usd: float | None


class Now(_PageEvent):
    """What the run is doing at this moment, by the last heartbeat of its driver.

    `rate`: examples per second; 0 if none has finished for half a minute. `longest`: the examples that have been in
    flight longest, from 10 s on. `last_result`: when an example last finished, ISO 8601, `no_result_s` seconds before
    the heartbeat; None before the first one. `waiting`: calls that wait for a slot; `waiting_for`: what the fleet
    lacks. `reflecting_since`: ISO 8601. `beat_age_s`: seconds since the last heartbeat was seen to change; None if the
    run is not driven. `lost`: no heartbeat for longer than the lease: the driver is dead or cut off.
    """

    type: Literal["now"] = "now"
    phase: PhaseName | None
    iteration: int | None
    metric_calls: int | None
    evaluated: int | None
    in_flight: int | None
    rate: float | None
    longest: list[LongInFlight]
    last_result: str | None
    no_result_s: float | None
    waiting: int | None
    waiting_for: str | None
    reflecting_since: str | None
    reflecting: list[str]
    endpoints: list[EndpointNow]
    spent_usd: float | None
    active_seconds: float | None
    beat_age_s: float | None
    lost: bool
    forecast: Forecast | None


class Position(_PageEvent):
    """How far this server has read. `end`: the place after the last entry of the search: the slider's range.

    `read`: all results below this place were sent. `replayed`: all facts below it that follow from GEPA's decisions
    (`pool`, `metric_calls`, outcomes of proposals) were sent; None if they cannot be had, for the reason
    `why_not_replayed`. `complete`: both are at the end of a run that is not driven.
    """

    type: Literal["position"] = "position"
    end: int
    read: int
    replayed: int | None
    why_not_replayed: str | None
    complete: bool


class StoreTrouble(_PageEvent):
    """The run cannot be read, and why; `problem` is None if it can be again. `gone`: it was deleted."""

    type: Literal["store"] = "store"
    problem: str | None
    gone: bool


PageEvent = (
    Run
    | Rows
    | Candidate
    | Pool
    | MetricCalls
    | Proposal
    | Iteration
    | Results
    | Reflection
    | Mutation
    | Race
    | Steer
    | RunWarning
    | Failures
    | SpendingSoFar
    | Sealed
    | Ties
    | Tested
    | CertificateFound
    | LeaksFound
    | Copied
    | Stopped
    | FinishedRun
    | Summary
    | Now
    | Position
    | StoreTrouble
)

AnyPageEvent = Annotated[PageEvent, Field(discriminator="type")]
