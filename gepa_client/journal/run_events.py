"""The events of a run: one JSON object each, the same in the log, on stdout and in the display."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.json_schema import SkipJsonSchema

from gepa_client.journal.answer_entries import TiedCandidate

Status = Literal["completed", "cancelled", "paused", "failed", "refused"]
"""How a run ended. `completed`: by its settings. `cancelled`: a user cancelled it. `paused`: it can
be resumed; a user stopped it, or the infrastructure failed. `failed`: it cannot continue as it is.
`refused`: it was not begun, as what was asked for cannot be; its record stays as it was."""


PhaseName = Literal["connecting", "seed", "replaying", "optimizing", "ties", "testing", "finalizing"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings", defer_build=True)


class _Event(_Part):
    seconds: float = 0.0
    """Since the run began."""

    at: int | None = None
    """How many numbers of the journal GEPA had requested by then; None while there was no journal."""


class Decision(_Event):
    """What GEPA decides in the search, or follows from that: the journal has it, and a resumed run makes it again."""

    recorded: SkipJsonSchema[dict[str, Any]] = Field(default={}, exclude=True, repr=False)
    """What the journal alone has of it, as first recorded; readers of events do without."""


class OfProcess(_Event):
    """How a process begins, and what it comes to after the search: a resumed run may test another candidate."""


class Started(OfProcess):
    """The server is known and the rows are loaded. `splits` gives rows per split: train, val and, if any, test.

    `language`: of the server, such as `python`. `evolve`: what is changed: the program's code, its texts, or both.
    `training_only`: there are no validation rows, so candidates are chosen by their scores on the training rows; `val`
    of `splits` is then their number. `sampled`: on how many validation rows the search scores candidates; None if all.
    """

    event: Literal["started"] = "started"
    run_id: str
    store: str
    resumed: bool
    url: str
    program: str
    program_version: str | None
    server: str
    language: str
    components: list[str]
    splits: dict[str, int]
    training_only: bool = False
    sampled: int | None = None
    max_metric_calls: int | None
    proposer: str
    evolve: Literal["code", "prompts", "both"] = "prompts"
    config: dict[str, Any]
    hash_seed: str | None


class Warned(_Event):
    """A warning; the run continues."""

    event: Literal["warning"] = "warning"
    message: str


class Phase(_Event):
    """What the run is busy with now."""

    event: Literal["phase"] = "phase"
    phase: PhaseName


class Progress(_Event):
    """Examples evaluated so far by this process and in flight at this moment; a few times a second.

    `up` of `endpoints` take work, `slots` calls at once in all; `waiting`: calls that wait for one of these.
    `spent_usd`: what is known to be spent, in every process of the run.
    """

    event: Literal["progress"] = "progress"
    evaluated: int
    in_flight: int
    up: int = 1
    endpoints: int = 1
    slots: int = 0
    waiting: int = 0
    spent_usd: float = 0.0


class ModelTally(_Part):
    """Calls of one model, or of all: how many, those among them that failed, what they are known to have cost."""

    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0


class ModelCalls(_Event):
    """Models that programs called through a gateway, in every process of the run; at most twice a second.

    `by_model`: by `provider/model`. `refused`: how often the gateway let something not through.
    """

    event: Literal["model_calls"] = "model_calls"
    total: ModelTally = ModelTally()
    by_model: dict[str, ModelTally] = {}
    refused: int = 0


class CallRefused(_Event):
    """A gateway did not let something through: `what` a program in `sandbox` asked for, and why; the first few.

    A repeated one is reported again, with all its `times`, when its sandbox ends.
    """

    event: Literal["call_refused"] = "call_refused"
    sandbox: str
    what: str
    reason: str
    times: int = 1


class FleetChanged(_Event):
    """An endpoint joined, was refused, rests, is back or has left; or, as `waiting`, none is left that answers.

    `url`: None where the whole fleet is meant. `after`: seconds it rests or was away, or until the run pauses.
    """

    event: Literal["fleet"] = "fleet"
    kind: Literal["joined", "refused", "resting", "back", "left", "waiting", "warning"]
    url: str | None
    detail: str
    after: float | None


class Budget(Decision):
    """Metric calls as GEPA counts them."""

    event: Literal["budget"] = "budget"
    metric_calls: int


class CandidateFound(Decision):
    """A candidate entered the pool; index 0 is the seed. `score` is its mean over the validation rows.

    `front`: the indices now on the Pareto front. `best`: the index with the best score. `metric_calls`: GEPA's count
    when the candidate had been scored. `proposal`: as of `ProposalBegun`; None for the seed and a merge.
    """

    event: Literal["candidate"] = "candidate"
    index: int
    parents: list[int]
    iteration: int
    proposal: int | None = None
    score: float
    texts: dict[str, str]
    front: list[int]
    best: int
    metric_calls: int
    objective_scores: dict[str, float] | None = None


class RacedOut(_Part):
    """How a proposal lost its race: on `compared` of the validation set's `rows`, for `calls` metric calls.

    `saved`: the metric calls that full validation would have taken besides. `mean`: of its differences to the best
    candidate on the compared rows.
    """

    compared: int
    rows: int
    calls: int
    saved: int
    mean: float

    def rejecting(self) -> dict[str, Any]:
        """Return the fields of `Rejected` by which a proposal that lost differs from others."""
        below = f"its mean score is {-self.mean:.3g} below that of the best candidate"
        return {"race": self, "reason": f"lost its race: on {self.compared:,} of {self.rows:,} rows {below}"}


class LostRaces(_Part):
    """All races that proposals of a run lost: how many, and the sums of the fields of `RacedOut`."""

    lost: int = 0
    compared: int = 0
    calls: int = 0
    saved: int = 0

    @classmethod
    def of(cls, races: Sequence[RacedOut]) -> Self:
        """Return the sums."""
        sums = {name: sum(getattr(race, name) for race in races) for name in ("compared", "calls", "saved")}
        return cls(lost=len(races), **sums)


class Rejected(Decision):
    """A proposal was not kept. Scores are sums over its minibatch, before and after; null for a merge.

    `candidate`: the beginning of its digest, as `FailureGroup` has it. `unchanged`: it has the texts of its parent.
    `race`: how it lost its race; None if it was not better on its minibatch, or was not selected. `proposal`: as of
    `ProposalBegun`; None for a merge.
    """

    event: Literal["rejected"] = "rejected"
    iteration: int
    proposal: int | None = None
    parents: list[int] = []
    old_score: float | None = None
    new_score: float | None = None
    reason: str
    candidate: str | None = None
    unchanged: bool = False
    race: RacedOut | None = None

    @property
    def outcome(self) -> Literal["rejected", "raced_out"]:
        """What it was rejected by."""
        return "rejected" if self.race is None else "raced_out"

    @property
    def is_by_score(self) -> bool:
        """Whether it was not better on its minibatch; else: a duplicate, a merge, not selected, lost its race."""
        return (
            self.race is None
            and self.old_score is not None
            and self.new_score is not None
            and self.new_score <= self.old_score
        )


class NoProposal(Decision):
    """An iteration ended with nothing to evaluate. `perfect`: all scores of its minibatch are; `empty`: no new text."""

    event: Literal["no_proposal"] = "no_proposal"
    iteration: int
    reason: str
    perfect: bool = False
    empty: bool = False


UnusableReason = Literal["truncated", "empty", "unchanged", "monologue", "ambiguous", "not text", "too long"]


class ProposalBegun(Decision):
    """The records of a minibatch are there, and new texts of `components` are asked for.

    `proposal`: the number of the entry with the records, by which later events name the proposal. `rows`: the ids of
    the training rows of the minibatch; `results`: the numbers of the entries with the results of `parent` on them;
    `score`: their sum.
    """

    event: Literal["proposal_begun"] = "proposal_begun"
    iteration: int
    proposal: int
    parent: int
    components: list[str]
    rows: list[str]
    results: list[int]
    score: float


class TextAnswer(_Part):
    """An answer from which a text of `component` was read, None if it has several. `number`: of its entry.

    `again`: why the answer before it could not be used; None for the first one.
    """

    component: str | None
    number: int
    again: UnusableReason | None = None


class ProposalMade(Decision):
    """What was proposed; of one iteration, all proposals are made at once.

    `texts`: the new texts by component, as GEPA gets them; empty if there is nothing to evaluate. `answers`: those of
    the reflection model, or of the program; `hints`: of users, which the prompts showed. `mutation`: the number of the
    change of code. `by_hand`: the user who gave the texts (`user@host`), and `request` the id of the request that did.
    """

    event: Literal["proposal_made"] = "proposal_made"
    iteration: int
    proposal: int
    texts: dict[str, str]
    answers: list[TextAnswer] = []
    hints: list[str] = []
    mutation: int | None = None
    by_hand: str | None = None
    request: str | None = None


class ProposalEvaluated(Decision):
    """A proposal was evaluated on its minibatch. `results`: the numbers of the entries; `score`: their sum.

    `candidate`, `unchanged`: as of `Rejected`.
    """

    event: Literal["proposal_evaluated"] = "proposal_evaluated"
    iteration: int
    proposal: int
    results: list[int]
    score: float
    candidate: str
    unchanged: bool = False


class ReflectionRetried(_Event):
    """The reflection model did not answer, because of `error`, and is asked again."""

    event: Literal["reflection_retried"] = "reflection_retried"
    error: str


MutationKind = Literal["change_request", "merge"]


class RecordsCut(Decision):
    """The records of a component do not fit into the prompt: of `records`, some were `shortened` and some `left_out`.

    `tokens`: about how many are missing. `setting`: what to raise so that fewer are.
    """

    event: Literal["records_cut"] = "records_cut"
    iteration: int
    component: str
    records: int
    shortened: int
    left_out: int
    tokens: int
    setting: str


class RecordCuts(_Part):
    """All such prompts of a run. `first`, `last`: their iterations; `settings`: what to raise."""

    prompts: int = 0
    shortened: int = 0
    left_out: int = 0
    tokens: int = 0
    first: int = 0
    last: int = 0
    settings: tuple[str, ...] = ()

    @classmethod
    def of(cls, cuts: Sequence[RecordsCut]) -> Self:
        """Return the sums."""
        sums = {name: sum(getattr(cut, name) for cut in cuts) for name in ("shortened", "left_out", "tokens")}
        first, last = (cuts[0].iteration, cuts[-1].iteration) if cuts else (0, 0)
        settings = tuple(sorted({cut.setting for cut in cuts}))
        return cls(prompts=len(cuts), **sums, first=first, last=last, settings=settings)


class UnusableText(_Part):
    """What a proposal has of an `UnusableAnswer`."""

    component: str
    reason: UnusableReason
    asked_again: bool
    then: UnusableReason | None = None
    dropped: bool


class UnusableAnswer(UnusableText, Decision):
    """An answer of reflection that held no new text of a component, which is never evaluated. `reason`: why.

    `asked_again`: the model was asked once more, with the reason; `then`: why its second answer was unusable too, None
    if it was used. `dropped`: the proposal has no new text of the component. `proposal`: as of `ProposalBegun`.
    """

    event: Literal["unusable_answer"] = "unusable_answer"
    iteration: int
    proposal: int | None = None


class UnusableAnswers(_Part):
    """All such answers of a run by their reasons, second ones included; the texts that were asked for once more.

    `dropped`: those that proposals lack.
    """

    reasons: dict[UnusableReason, int] = {}
    asked_again: int = 0
    dropped: int = 0

    @classmethod
    def of(cls, answers: Sequence[UnusableAnswer]) -> Self:
        """Return the sums."""
        return cls(
            reasons=Counter(reason for each in answers for reason in (each.reason, each.then) if reason is not None),
            asked_again=sum(each.asked_again for each in answers),
            dropped=sum(each.dropped for each in answers),
        )


class CopiedExample(_Part):
    """A part of a candidate's text that training rows have too, word for word, and that the seed lacks.

    `words`: how long it is; `text`: its beginning. `rows`: ids of the first rows that have it, `row_count` in all.
    """

    candidate: int
    component: str
    words: int
    text: str
    rows: list[str]
    row_count: int


class CopiedExamples(_Event):
    """What candidates copied from training rows: `count` parts, the longest of each candidate first."""

    event: Literal["copied_examples"] = "copied_examples"
    count: int
    candidates: list[int]
    copies: list[CopiedExample]


class _MutationEvent(_Event):
    """A requested change of a candidate's code.

    `number`: its number in the journal, whose entry has all of it, and of its branch `evolve/<run>/<number>`.
    `parents`: indices of candidates, first the one whose code is changed; two where their code is merged. `request`:
    what is asked for.
    """

    event: str
    number: int
    kind: MutationKind
    parents: list[int]
    request: str


class MutationStarted(_MutationEvent):
    """A requested change is being made; emitted when it is, not on replay."""

    event: Literal["mutation_started"] = "mutation_started"


class MutationProgress(_Event):
    """The server's progress message about a mutation."""

    event: Literal["mutation_progress"] = "mutation_progress"
    number: int
    message: str


class Mutated(_MutationEvent):
    """A change of code was made; the candidate with it is evaluated next.

    `lines_added`, `lines_removed`: over all `files`. `cost_usd`: None if it was not reported.
    """

    event: Literal["mutated"] = "mutated"
    branch: str
    commit: str
    files: list[str]
    lines_added: int
    lines_removed: int
    summary: str
    cost_usd: float | None = None


class MutationRejected(_MutationEvent):
    """A change of code was rejected and left no trace; reflection gets the reason.

    `stage`: where it failed, as the contract names them. `cost_usd`: as of `Mutated`.
    """

    event: Literal["mutation_rejected"] = "mutation_rejected"
    stage: str
    reason: str
    cost_usd: float | None = None


class StepFailed(Decision):
    """A step of an iteration failed; GEPA continues with the next one."""

    event: Literal["failure"] = "failure"
    iteration: int
    step: str
    message: str
    details: str | None = None


class FailureGroup(_Part):
    """Failed examples of one type. `type`: the exception's; `status`: `program_error` or `timeout`.

    `rows`: the ids of the first rows it happened on, with their split (`val 7`), `row_count` of them in all.
    `candidates`: how many examples failed by candidate: its index, or the beginning of its digest if it was not kept.
    `messages`: how often the most frequent messages occurred, by their beginnings; `message_count`: how many different
    ones there are, at most 1,000. `message`, `traceback`, `log` (what the program wrote), `row`, `candidate`: of the
    first one.
    """

    type: str
    status: Literal["program_error", "timeout"]
    count: int
    rows: list[str]
    row_count: int
    candidates: dict[str, int]
    messages: dict[str, int] = {}
    message_count: int = 0
    message: str
    traceback: str | None = None
    log: str | None = None
    row: str
    candidate: str


class FailedExamples(_Event):
    """Examples that failed in the program, in every process of the run: `failed` of `evaluated`.

    `groups`: by type, the most frequent first.
    """

    event: Literal["failed_examples"] = "failed_examples"
    failed: int
    evaluated: int
    groups: list[FailureGroup]


class RetryGroup(_Part):
    """How often examples failed transiently for one reason. `host`: that failed, None if the server names none."""

    host: str | None
    reason: str
    failures: int


class RetriedExamples(_Event):
    """Examples that were tried again after an `infra_error`, in every process of the run: how many different ones.

    `groups`: their failures by host and reason, the most frequent first.
    """

    event: Literal["retried_examples"] = "retried_examples"
    examples: int
    groups: list[RetryGroup]


class Steered(Decision):
    """A user's request to the run was taken, or `refused` for this reason. `action`: its kind; `text`: in words.

    `number`: of its entry in the journal. `author`: `user@host`; `created`: when it was made, by the author's clock.
    `best`, `front`: of the pool after it. `max_metric_calls`: the new limit, None if it stays or is replayed.
    """

    event: Literal["steered"] = "steered"
    action: str
    text: str
    author: str
    created: str
    number: int | None = None
    refused: str | None = None
    best: int | None = None
    front: list[int] = []
    max_metric_calls: int | None = None


class Sealed(_Event):
    """The test rows were committed to before the first iteration. `digest`: of their ids and contents."""

    event: Literal["sealed"] = "sealed"
    rows: int
    digest: str


class TiesCompared(OfProcess):
    """The best candidates were compared on `rows` fresh rows: with `tie_rows` all that tie; after a race, the seed too.

    `best`: the one with the highest mean over validation and fresh rows. `validation_rows`: those of the search.
    `validation_left`: fresh rows that are validation rows; the others are training rows, of which `asked` were asked
    for. `candidates`: each with its means. `metric_calls`: of the run, with these evaluations.
    """

    event: Literal["ties_compared"] = "ties_compared"
    best: int
    rows: int
    validation_rows: int
    validation_left: int = 0
    asked: int
    candidates: list[TiedCandidate]
    metric_calls: int


class Tested(OfProcess):
    """A candidate's mean score over the test rows, each of which was scored `repeats` times."""

    event: Literal["tested"] = "tested"
    index: int
    score: float
    rows: int
    repeats: int = 1


class Finalized(OfProcess):
    """The best candidate was reported to the program; `error`: why that failed. `endpoint`: the server's URL."""

    event: Literal["finalized"] = "finalized"
    message: str | None = None
    error: str | None = None
    endpoint: str | None = None


class Finished(OfProcess):
    """The last event. `files` are the names written into the output folder; costs are those that were reported.

    `model_usd`: what programs' calls of models cost, where a gateway counted them; then no other cost of theirs is.

    `details`: what is known of a failure beyond its reason. `unpriced`: results without a price, by kind of work;
    `unreported`: those of them whose program reported no usage, as it may have called no model. `resume_with`: flags
    without which a resumed run would end in the same way. `search_complete`: GEPA ended the search between two
    iterations, so that every result is counted in `metric_calls`. `active_seconds`: how long processes have driven the
    run, those before a `resume` included; None if that is not known. `reused`: results that were not made again, as the
    program is deterministic; None if it is not known to be. `infrastructure`: the store, the lease, the servers or the
    driver process was lost, so that the same run can continue without a change. `in_replay`: a resumed run ended before
    the end of its record, so that these events show less than the record has.
    """

    event: Literal["finished"] = "finished"
    status: Status
    reason: str | None = None
    infrastructure: bool = False
    details: str | None = None
    metric_calls: int
    evaluation_usd: float | None = None
    reflection_usd: float | None = None
    mutation_usd: float | None = None
    model_usd: float | None = None
    unpriced: dict[str, int] = {}
    unreported: dict[str, int] = {}
    files: list[str] = []
    resume_with: list[str] = []
    search_complete: bool = False
    active_seconds: float | None = None
    reused: int | None = None
    in_replay: bool = False


Event = (
    Started
    | Warned
    | Phase
    | Progress
    | ModelCalls
    | CallRefused
    | FleetChanged
    | Budget
    | CandidateFound
    | Rejected
    | NoProposal
    | RecordsCut
    | UnusableAnswer
    | ProposalBegun
    | ProposalMade
    | ProposalEvaluated
    | ReflectionRetried
    | MutationStarted
    | MutationProgress
    | Mutated
    | MutationRejected
    | StepFailed
    | FailedExamples
    | RetriedExamples
    | CopiedExamples
    | Steered
    | Sealed
    | TiesCompared
    | Tested
    | Finalized
    | Finished
)

ShownDecision = Budget | Steered | StepFailed
"""Decisions that a page of the run gets as they are."""

Emit = Callable[[Event], None]

_ADAPTER: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="event")], config=ConfigDict(defer_build=True)
)


def from_json(line: str | bytes) -> Event:
    """Return the event in one line of JSON.

    Raises:
        pydantic.ValidationError: the line is not an event.
    """
    return _ADAPTER.validate_json(line)


def from_fields(kind: str, fields: Mapping[str, Any]) -> Event:
    """Return the event of this kind with these members. Raises: as `from_json`."""
    return _ADAPTER.validate_python({**fields, "event": kind})
