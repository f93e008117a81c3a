"""The rows of a run's journal: answers that GEPA got, attempts that were made for them, and its decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from gepa_client.transport.calls import FailedTry
from protocol import JsonValue
from protocol.code import GIT_BRANCH

RunStatus = Literal["pending", "running", "paused", "completed", "failed", "cancelled"]

SEARCH = "search"
"""The part whose numbers follow GEPA's requests."""

START = "start"
"""The part that holds what the run began with: discovery and rows."""

GATEWAY = "gateway"
"""The part whose attempts are calls of models that a gateway let through, and whose entries are what it refused."""

EVENTS = "events"
"""The part that holds what GEPA decided in the search: a run that is resumed or replayed decides the same."""

CANDIDATE, STEERED = "candidate", "steered"
"""Kinds of these decisions: a candidate entered the pool, a user's request was taken."""

PROCESSES = "processes"
"""The part that holds how the processes that drove the run began and ended: a later event replaces an earlier one."""

EVALUATE, RETRACE, SCORE = "evaluate", "retrace", "score"
REFLECTIVE_DATASET, COMPLETION, PROPOSAL = "reflective_dataset", "completion", "proposal"
OUTLINE, MUTATION = "outline", "mutation"
"""Kinds of entries and of attempts: what GEPA asks for, and what is sent for it."""

PROBE = "probe"
"""The kind of an attempt that runs or scores another row again to learn whether a host answers."""

COMPARE = "compare"
"""The part, and the kind, of the attempts that evaluate rows with the seed to compare servers; it has no entries."""

RACE = "race"
"""The kind of an entry that decides on proposals in a race: which are dropped, and which rows are evaluated next."""

REUSE = "reuse"
"""The kind of an entry whose answer lists numbers: those of earlier results that served a call, and of new ones."""

MODEL_CALL = "model_call"
"""The kind of an attempt that a program made, by way of a gateway."""

SELF_REPORTED = frozenset({EVALUATE, RETRACE, PROBE, COMPARE, REFLECTIVE_DATASET, PROPOSAL, OUTLINE, MUTATION})
"""Kinds whose price the program reports: if a gateway counts the calls of models, theirs are counted already."""

MAY_BE_FREE = frozenset({EVALUATE, RETRACE, SCORE, PROBE, COMPARE})
"""Kinds whose results report no usage if the program calls no model; other work without usage has an unknown price."""

WITHOUT_ANSWER = frozenset({"lost", "refused", "error", "cancelled", "infra_error"})
"""Outcomes of attempts that brought no answer; after any other one the server may still hold it."""

REFUSAL = "refusal"
"""The kind of an entry that records what a gateway refused a sandbox."""

ROLLOUT = "rollout"
"""The kind of an entry that is no answer yet: a result that waits for another endpoint's score."""

COMMITMENT = "commitment"
"""The part, and the kind, of the entry that commits to the test rows."""

TEST_PLAN = "test_plan"
"""The kind of an entry that decides how often the test rows are scored."""

TIES = "ties"
"""The kind of an entry that plans a comparison of the best candidates on fresh rows, or decides it."""

STEER = "steer"
"""The kind of an entry that a user's request to a run made: of what, by whom and when."""

CONTROL = "control"
"""The part that holds the requests which stopped a run: `pause` and `cancel`."""

STOP = "stop"
"""The kind of an entry that ends a run: a limit on money or time that no replay can work out again."""

FAILURE = "failure"
"""The kind of an entry whose answer is an exception GEPA saw."""

VERBATIM = {
    MUTATION: frozenset({"bundle", "commit", "parent"}),
    REFLECTIVE_DATASET: frozenset({"base64"}),
    CANDIDATE: frozenset({GIT_BRANCH}),
}
"""Keys, by kind, whose values are not redacted: ids of commits, bundles and images in base64 may match anything."""


RESUMED_BY = "resumed_by"
"""Key of a run's config: the call that continues it in place of `evolverpc resume`, with `ITS_ID` for its id."""

ITS_ID = "{RUN}"


def now() -> str:
    """Return the present time as `moment_text` writes it."""
    return moment_text(datetime.now(UTC))


def moment_text(moment: datetime) -> str:
    """Return a time as runs hold it: ISO 8601 in UTC, to the millisecond. A time without a zone is one of UTC."""
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return zoned.astimezone(UTC).isoformat(timespec="milliseconds")


def moment_of(text: str) -> datetime:
    """Return the time of `moment_text`. Raises `ValueError` for other text."""
    return datetime.fromisoformat(text)


def _moment(text: str) -> str:
    try:
        return moment_text(moment_of(text))
    except OverflowError as error:  # a time zone that leads out of the calendar
        raise ValueError(str(error)) from error


LARGEST_NUMBER = 2**53 - 1
"""Of what numbers rows: kept by every store and read by every reader of JSON, one more included."""

Index = Annotated[int, Field(strict=True, ge=0, le=LARGEST_NUMBER)]
Many = Annotated[int, Field(strict=True, ge=0, le=2**31)]
Number = Annotated[float, Field(strict=True)]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,200}\z")]
"""A part, a kind, a digest, an outcome."""

Name = Annotated[Word, Field(min_length=1)]
Moment = Annotated[str, AfterValidator(_moment)]
READ_ROWS = ConfigDict(extra="forbid", allow_inf_nan=False)
"""How rows from elsewhere are read: over HTTP, and of an exported run."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The answer to one request, as GEPA saw it; (run, part, number) is unique.

    `part`: which of the run's number lines (`search`, `start`, `test-3`, ...). `number`: from 0, in the order asked.
    `kind`: `evaluate`, `reflective_dataset`, `completion`, `mutation`, `stop`, ... `digest`: of the request, in hex.
    `about`: the request in words. `answer`: JSON in UTF-8, its keys in their own order. `omitted`: the size in bytes of
    an answer that was left in the store; then `answer` is empty. `candidate`, `row`: the digests of what an evaluation
    is of, the row's as it goes over the wire; empty for other kinds.
    """

    __pydantic_config__ = READ_ROWS

    part: Name
    number: Index
    kind: Name
    digest: Word
    about: str
    answer: bytes
    omitted: Index = 0
    candidate: Word = ""
    row: Word = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that is about to be made, or one that ended, by its `outcome`; (run, part, number, attempt) is unique.

    `attempt`: from 1. `kind`: what for: `evaluate`, `retrace`, `score`, `reflective_dataset`, `completion`, ...
    `endpoint`: a server's URL or a model's name. `instance`: the server's `instance_id`.

    `outcome`: a result's status, or `lost` (unknown), `refused` (it never ran), `error` (an error response).
    `usage`: the contract's `Usage`, None if none was reported. `examples`: how many results the attempt brought;
    `unpriced`: how many of them came without a `cost_usd`; 1 for an attempt that brought none, but whose agent may have
    worked at an unknown price. `failed`: the examples that it left to be tried again.
    """

    __pydantic_config__ = READ_ROWS

    part: Name
    number: Index
    attempt: Annotated[Index, Field(ge=1)]
    kind: Name
    endpoint: str
    instance: str | None
    outcome: Word | None = None
    seconds: Annotated[Number, Field(ge=0)] | None = None
    usage: dict[str, Any] | None = None
    examples: Many = 1
    unpriced: Many = 0
    failed: list[FailedTry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """A candidate that GEPA took into its pool, as the event of its kind in `EVENTS` states it.

    `number`: how many entries of `search` there were by then. `scores`: per validation row, by GEPA's row id as text.
    `metric_calls`: GEPA's count when the candidate was found (`discovery_eval_counts`). `dropped`: the number of the
    entry by which a user dropped it, None if it was not.

    `found`, `cost_usd`: when it was first found (as `now` writes it), and what the run was known to have cost by then,
    None if nothing had a price. No replay repeats them.
    """

    __pydantic_config__ = READ_ROWS

    index: Index
    texts: dict[str, str]
    parents: list[Index]
    iteration: Annotated[int, Field(strict=True, ge=-1, le=LARGEST_NUMBER)]
    number: Index
    score: Number
    scores: dict[str, Number]
    metric_calls: Index
    objective_scores: dict[str, Number] | None = None
    found: Moment | None = field(default=None, compare=False)
    cost_usd: Number | None = field(default=None, compare=False)
    dropped: Index | None = None

    @classmethod
    def of(cls, decision: Mapping[str, Any], dropped: int | None = None) -> "CandidateRecord":
        """Return the candidate of a recorded event. Raises `LookupError` if it lacks a member."""
        stated = ("index", "texts", "parents", "iteration", "score", "scores")
        fields: dict[str, Any] = {name: decision[name] for name in stated}
        fields |= {name: decision.get(name) for name in ("objective_scores", "found", "cost_usd")}
        return cls(**fields, number=decision["at"], metric_calls=decision["metric_calls_before"], dropped=dropped)


Row = Entry | Attempt


@dataclass(frozen=True, slots=True)
class Spending:
    """The totals of the attempts of one kind and outcome (None: not ended); sums of what was reported.

    `attempts`: how many; `examples`, `unpriced`: sums of those of `Attempt`; `unreported`: the part of `unpriced` by
    `unreported_results`.
    """

    kind: str
    outcome: str | None
    attempts: int
    examples: int
    unpriced: int
    unreported: int
    cost_usd: float
    input_tokens: int
    output_tokens: int
    seconds: float


def unreported_results(kind: str, usage: Mapping[str, Any] | None, examples: int, unpriced: int) -> int:
    """Return how many results of an attempt reported no usage and may have cost nothing: the program called no model.

    Others without a price reported usage, or called a model: what they cost is not known.
    """
    return unpriced if kind in MAY_BE_FREE and usage is None and examples else 0


RequestOutcome = Literal["taken", "refused"]


@dataclass(frozen=True, slots=True)
class SteeringRequest:
    """What a user asked of a run, as the store queues it for the driver; the run's entries hold what was taken.

    `id`: unique within the run. `action`: JSON of `steer_entries.Action`. `author`: `user@host`. `created`: as `now`
    writes it. `outcome`: None while it waits. `number`: of its entry if it was taken; `reason`: why it was refused.
    """

    id: str
    action: dict[str, Any]
    author: str
    created: str
    outcome: RequestOutcome | None = None
    number: int | None = None
    reason: str | None = None

    @property
    def stops(self) -> str | None:
        """The action, `pause` or `cancel`, if it stops the run."""
        kind = self.action.get("kind")
        return kind if kind in ("pause", "cancel") else None


@dataclass(frozen=True, slots=True)
class Claim:
    """The process that drives a run; `beat` grows with every heartbeat. `owner`: None if no process drives it."""

    owner: str | None
    beat: int


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as the store knows it; without further values, one that has not started.

    `status`: one of `RunStatus`; `reason`: why, in words.
    `config`: the settings, without secrets. `identity`: what must be the same for a replay; None until the first start.
    `program`: the name that the program gives itself; None until the first start. `counters`: iteration, metric_calls,
    budget, spent_usd, active_seconds, ... `best`: index, score and texts. `driver`: the
    driving process in words (`pid 12 on host`).

    `created`, `updated`, `started`, `completed`: ISO 8601 in UTC, for display and queries only. `started`: when a
    process first drove it. `completed`: when it came to its status, None unless that is `completed`, `failed` or
    `cancelled`: a run that was killed, is paused or was resumed has none.
    """

    id: str
    name: str | None = None
    program: str | None = None
    status: str = "pending"
    reason: str | None = None
    config: dict[str, Any]
    identity: dict[str, Any] | None = None
    counters: dict[str, Any] = field(default_factory=dict)
    best: dict[str, Any] | None = None
    output: str | None = None
    parent: dict[str, JsonValue] | None = None
    claim: Claim = Claim(None, 0)
    driver: str | None = None
    created: str = field(default_factory=now)
    updated: str = field(default_factory=now)
    started: str | None = None
    completed: str | None = None

    @property
    def inherited(self) -> int:
        """How many numbers of the search a fork has from the run it was forked from."""
        at = (self.parent or {}).get("at")
        return at if isinstance(at, int) else 0

    @property
    def resumed_by(self) -> str | None:
        """The call that continues it, None if the command does: of a run whose program has no server of its own."""
        call = self.config.get(RESUMED_BY)
        return call.replace(ITS_ID, self.id) if isinstance(call, str) else None
