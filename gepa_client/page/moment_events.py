"""Events of the page about the run as it stands: its record, what it does, spent and failed at; what it came to."""

from typing import Literal

from pydantic import Field, JsonValue

from gepa_client.journal.run_events import FailureGroup, PhaseName
from gepa_client.page.page_fact import Part
from gepa_client.run.run_view import Headline


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
