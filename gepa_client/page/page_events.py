"""What the page of a run receives: facts with their place in the journal, and facts of this moment, each an object.

`at` is a place in the part `search` of the journal: how many of its numbers GEPA had requested. The page at N is the
state by all facts with `at` <= N: what `evolverpc replay --until N` shows. Facts that
are not of the search (`run`, `now`, `spending`, ...) have no `at`; a later one replaces an earlier one of its kind,
unless its class states another rule, or `KEYS`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gepa_client.analysis.proposals import Excerpt, Outcome, as_text
from gepa_client.journal import run_events
from gepa_client.journal.run_events import FailureGroup, PhaseName
from gepa_client.run.run_view import Headline

TEXT_SENT = 20_000
"""Characters of a text that events hold; of a longer one they hold the first `TEXT_BEGINNING`."""

TEXT_BEGINNING = 2_000


class Part(BaseModel):
    """An event or an answer, or a part of one."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", defer_build=True)


def sent_text(text: str) -> Excerpt:
    """Return a text as events hold it."""
    if len(text) <= TEXT_SENT:
        return Excerpt(text=text)
    return Excerpt(text=text[:TEXT_BEGINNING], omitted=len(text) - TEXT_BEGINNING)


def shown(value: Any) -> Excerpt | None:
    """Return a value as text; None for null."""
    return None if value is None else sent_text(as_text(value))


# --- facts of the search, with their place ---------------------------------------------------------------------------


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


# --- the run as it stands --------------------------------------------------------------------------------------------


class CommandHint(Part):
    """A command that a user may type next, and what it does."""

    command: str
    what: str


class Run(Part):
    """The record of the run. `settings`: without secrets. `budget`: metric calls, None without that limit.

    `splits`: rows by split. `sampled`: on how many validation rows the search scores candidates; None if on all.
    `parent`: the run that this one was forked from, and where. `driver`: the driving process in words; `driven`: it
    holds the lease. Times are ISO 8601 in UTC. `reflection_model`: None if the program proposes. `warnings`: of
    its last process.
    """

    event: Literal["run"] = "run"
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
    sampled: int | None
    reflection_model: str | None
    output: str | None
    parent: str | None
    driver: str | None
    driven: bool
    store: str
    warnings: list[str]
    commands: list[CommandHint]


class Steer(Part):
    """What a user asked of the run. All are kept, by `key`.

    `at`: the place after its entry in the search, None without one. `text`: the action in words. `outcome`: in the
    words of `evolverpc steer list`; None while it waits.
    """

    event: Literal["steer"] = "steer"
    key: str
    at: int | None
    action: str
    requested: str | None
    by: str | None
    text: str
    outcome: str | None


class FailureCounts(Part):
    """Examples that failed in the program: `failed` of `evaluated`, by type, the most frequent first.

    `words`: of each group, on which rows, with which candidates and messages. `cells`: places of the validation rows on
    which a candidate failed, by the beginning of its digest.
    """

    event: Literal["failures"] = "failures"
    failed: int
    evaluated: int
    groups: list[FailureGroup]
    words: list[str]
    cells: dict[str, list[int]]


class SummaryTable(Part):
    """A table; each row begins with a name."""

    heading: str
    columns: list[str]
    rows: list[list[str]]


class SpendingSoFar(Part):
    """What the run spent: its `cost` in words; `table`: by kind and outcome of attempts."""

    event: Literal["spending"] = "spending"
    cost: str
    table: SummaryTable


class EndpointNow(Part):
    """An endpoint. `state`: `up`, `resting`, `refused` or `left`; `in_flight`: None if it is not known."""

    name: str
    state: str
    slots: int | None = None
    in_flight: int | None = None
    detail: str | None = None


class LongInFlight(Part):
    """An example in flight. `row`, `candidate`: as `FailureGroup` has them. `limit_s`: when the server ends it.

    `endpoint`: the address of that server; None if it is not recorded.
    """

    row: str
    candidate: str
    seconds: float
    limit_s: float | None
    endpoint: str | None = None


class Now(Part):
    """What the run is doing at this moment, by the last heartbeat of its driver.

    `rate`: examples per second; 0 if none has finished for half a minute. `seconds_left` of the budget of metric
    calls at this rate, and what the run will have cost then; None if that is not known. `longest`: the examples
    that have been in flight longest, from 10 s on. `last_result`: when an example last finished other than by a
    time-out, ISO 8601, `no_result_s` seconds before the heartbeat; None before the first one. `timeouts`: examples
    that timed out since. `usual_s`: mean seconds of an example that did not time out; None before the first one.
    `waiting`: calls that wait for a slot; `waiting_for`: what the fleet lacks, since `waiting_since`, ISO 8601.
    `reflecting_since`: ISO 8601. `beat_age_s`: seconds since the last heartbeat was seen to change; None if the run
    is not driven. `lost`: no heartbeat for longer than the lease: the driver is dead or cut off.
    """

    event: Literal["now"] = "now"
    phase: PhaseName | None = None
    iteration: int | None
    metric_calls: int | None
    evaluated: int | None = None
    in_flight: int | None = None
    rate: float | None = None
    seconds_left: float | None = None
    cost_at_end_usd: float | None = None
    longest: list[LongInFlight]
    last_result: str | None = None
    no_result_s: float | None = None
    timeouts: int = 0
    usual_s: float | None = None
    waiting: int | None = None
    waiting_for: str | None = None
    waiting_since: str | None = None
    reflecting_since: str | None = None
    reflecting: list[str] = Field(default_factory=list)
    endpoints: list[EndpointNow] = Field(default_factory=list)
    active_seconds: float | None
    beat_age_s: float | None
    lost: bool


class Notice(Part):
    """What a reader needs first, in words. `kind`: `lost`: no heartbeat; `stuck`: no result; `stopped`: not driven."""

    kind: Literal["lost", "stuck", "waiting", "stopped"]
    title: str
    text: list[str]
    commands: list[CommandHint]


class Notices(Part):
    """What is to be stated of the run at this moment."""

    event: Literal["notices"] = "notices"
    notices: list[Notice]


class Position(Part):
    """How far this server has read, once it has read what GEPA decided.

    `end`: the place after the last entry of the search: the slider's range. `complete`: all was read of a run that is
    not driven: proposals without an outcome get none unless it is resumed.
    """

    event: Literal["position"] = "position"
    end: int
    complete: bool


class StoreTrouble(Part):
    """The run cannot be read, and why; `problem` is None if it can be again. `gone`: it was deleted."""

    event: Literal["store"] = "store"
    problem: str | None
    gone: bool


class StatedFact(Part):
    """A fact in words."""

    label: str
    text: str


class Summary(Part):
    """What a run came to; of a run that is driven again, what it had come to.

    `best`: the index of the best candidate, by a comparison of the best ones too. `test`: the scores on the test rows,
    None if these were not scored; `compared`: on the rows of the search and those compared after it, as of `Headline`.
    `low` to `high`: the 95 % interval of the best candidate's score on the validation rows without the luck of the
    choice; None without a certificate. `story`: sentences. `certificate`: what it states, or why there is none.
    `no_improvement`: why a run did not improve, with what to try; empty for other runs.
    """

    event: Literal["summary"] = "summary"
    best: int | None
    test: Headline | None
    compared: Headline | None
    low: float | None = None
    high: float | None = None
    story: list[str]
    certificate: list[StatedFact]
    no_improvement: list[StatedFact]
    facts: list[StatedFact]
    tables: list[SummaryTable]


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

KEYS = {
    "candidate": "index",
    "steered": "number",
    "budget": "at",
    "failure": "iteration",
    "proposal": "key",
    "mutation": "at",
    "steer": "key",
    "rows": "start",
}
"""The field by which events of a kind differ. Of the other kinds a later event replaces an earlier one."""

COLUMNS = "results"
"""The kind whose events are all kept."""
