"""Have code changed, several mutations at once, each recorded as it ends; and what came of each, for the next ones."""

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gepa.core.callbacks import MergeAttemptedEvent, ValsetEvaluatedEvent
from gepa.core.state import GEPAState
from gepa.proposer.base import CandidateProposal
from gepa.strategies.acceptance import AcceptanceCriterion
from gepa.strategies.proposal_selection import SelectionStrategy
from pydantic import ValidationError

from gepa_client.errors import BadResponse, Refused
from gepa_client.evolution.mutation_events import mutation_event
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.journal.answer_entries import CommitGraph, MutationEntry, Rejection
from gepa_client.journal.entries import MUTATION, OUTLINE
from gepa_client.journal.journal import KeyedCall
from gepa_client.journal.requests import RecordedRequest, request_key
from gepa_client.journal.run_events import Emit, MutationProgress, MutationStarted
from gepa_client.settings.run_settings import MUTATION_LIMIT_S
from gepa_client.transport.calls import Call, FailureCost, Reply
from gepa_client.transport.responses import validated
from protocol import ApplyMutationResult, Candidate, JsonValue, OutlineCodeResult, Progress, Usage
from protocol import errors as rpc_errors
from protocol.code import added_to, commit_of
from protocol.errors import RpcError

LONGEST = 20
"""The most changes in a prompt, the last ones."""

LOG_TAIL = 1500
"""Characters of a failed command's last output in a prompt."""

NEVER_STARTED = (
    Refused,
    rpc_errors.ParseError,
    rpc_errors.InvalidRequest,
    rpc_errors.MethodNotFound,
    rpc_errors.InvalidParams,
    rpc_errors.VersionNotSupported,
    rpc_errors.Unauthorized,
    rpc_errors.UnknownCandidate,
    rpc_errors.LimitExceeded,
)
"""Errors of requests that reach no agent."""


@dataclass
class CodeChange:
    """A requested change. `score`, `parent_score`: means over the minibatch it was tried on.

    `tried`: a candidate with it was evaluated. `kept`: that candidate is in GEPA's pool. `lost`: it was better on its
    minibatch, and dropped by its scores on validation rows.
    """

    entry: MutationEntry
    tried: bool = False
    kept: bool = False
    lost: bool = False
    score: float | None = None
    parent_score: float | None = None

    @property
    def commit(self) -> str | None:
        """The commit it made; None if it was rejected."""
        return self.entry.applied.commit if self.entry.applied is not None else None


class Lineage:
    """Every change of the run, and a GEPA callback that notes their outcomes.

    It depends on GEPA's announcements only, never on clocks or costs, so that a replay repeats it.
    """

    def __init__(self, commits: CommitGraph) -> None:
        self._commits = commits
        self._changes: list[CodeChange] = []
        self._pool: dict[frozenset[tuple[str, str]], int] = {}

    def add(self, entry: MutationEntry) -> None:
        """Add a change that was made or rejected."""
        self._changes.append(CodeChange(entry))

    def evaluated(self, parent: Candidate, proposal: Candidate, parent_score: float, score: float) -> None:
        """Note the mean scores of a candidate and its parent on the same rows."""
        if commit_of(parent) != commit_of(proposal):
            for change in self._of(proposal):
                change.tried, change.parent_score, change.score = True, parent_score, score

    def lost(self, candidate: Candidate) -> None:
        """Note that a candidate was dropped by its scores on validation rows."""
        for change in self._of(candidate):
            change.lost = True

    def on_merge_attempted(self, event: MergeAttemptedEvent) -> None:
        """Note that a merged candidate was evaluated."""
        for change in self._of(event["merged_candidate"]):
            change.tried = True

    def on_valset_evaluated(self, event: ValsetEvaluatedEvent) -> None:
        """Note that a candidate is in the pool."""
        self._pool.setdefault(frozenset(event["candidate"].items()), event["candidate_idx"])
        for change in self._of(event["candidate"]):
            change.tried = change.kept = True

    def index(self, candidate: Candidate) -> int | None:
        """Return the candidate's index in GEPA's pool."""
        return self._pool.get(frozenset(candidate.items()))

    def history(self, candidate: Candidate) -> list[dict[str, JsonValue]]:
        """Return past changes for a coding agent: the contract's `PastMutation`s, oldest first."""
        line = self._commits.ancestry(candidate)
        own = [change for change in self._tried_on(line) if not change.kept or change.commit in line]
        return [_past(change, line) for change in own[-LONGEST:]]

    def as_text(self, candidate: Candidate) -> str:
        """Return past changes as text for a model, with those of other candidates that were tried on this line."""
        line = self._commits.ancestry(candidate)
        entries = [_as_text(change, line) for change in self._tried_on(line)[-LONGEST:]]
        return "\n\n".join(f"{at}. {entry}" for at, entry in enumerate(entries, 1)) or "Nothing was tried yet."

    def _of(self, candidate: Candidate) -> list[CodeChange]:
        commit = commit_of(candidate)
        return [change for change in self._changes if change.commit is not None and change.commit == commit]

    def _tried_on(self, line: set[str]) -> list[CodeChange]:
        """Return the changes tried on commits of the line, without those whose outcome is unknown."""
        on_it = [change for change in self._changes if change.entry.parent in line or change.entry.other in line]
        return [change for change in on_it if change.tried or change.commit is None]


@dataclass
class ScoringSelection:
    """Wraps a selection strategy of GEPA's to note every proposal's scores."""

    selection: SelectionStrategy
    lineage: Lineage

    def select(
        self, proposals: list[CandidateProposal[Any]], state: GEPAState[Any, Any], acceptance: AcceptanceCriterion
    ) -> list[CandidateProposal[Any]]:
        """Return the proposals that the wrapped strategy selects."""
        for proposal in proposals:
            parent = state.program_candidates[proposal.parent_program_ids[0]]
            before, after = proposal.subsample_scores_before, proposal.subsample_scores_after
            if before and after:
                self.lineage.evaluated(parent, proposal.candidate, _mean(before), _mean(after))
        return self.selection.select(proposals, state, acceptance)


def _past(change: CodeChange, line: set[str]) -> dict[str, JsonValue]:
    past: dict[str, JsonValue] = {"request": change.entry.request, "outcome": "not_better"}
    if change.entry.rejected is not None:
        rejected = change.entry.rejected
        return past | {"outcome": "rejected", "stage": rejected.stage, "reason": _reason(rejected)}
    if change.commit in line:
        past["outcome"] = "accepted"
    if change.score is not None:
        past |= {"score": change.score, "parent_score": change.parent_score}
    return past


def _as_text(change: CodeChange, line: set[str]) -> str:
    scores = "" if change.score is None else f" (mean score {change.parent_score:.4g} before, {change.score:.4g} after)"
    if change.entry.rejected is not None:
        outcome = f"rejected at the stage `{change.entry.rejected.stage}`: {_reason(change.entry.rejected)}"
    elif change.commit in line:
        outcome = f"accepted, part of the code above{scores}"
    elif change.kept:
        outcome = f"accepted for another candidate, not part of the code above{scores}"
    elif change.lost:
        outcome = f"better on these rows, worse on others, dropped{scores}"
    else:
        outcome = f"not better, dropped{scores}"
    return f"{change.entry.request}\nOutcome: {outcome}"


def _reason(rejected: Rejection) -> str:
    tail = f"\n{rejected.log_tail[-LOG_TAIL:]}" if rejected.log_tail else ""
    return f"{rejected.reason}{tail}"


def _mean(scores: list[float]) -> float:
    return sum(scores) / len(scores)


@dataclass(frozen=True)
class MutationRequest:
    """A change of a candidate's code. `mutation`: as the contract defines it; `request`: the change in words.

    `other`: the candidate whose code is merged in.
    """

    candidate: Candidate
    mutation: dict[str, JsonValue]
    request: str
    location: str | None = None
    other: Candidate | None = None

    @property
    def kind(self) -> Literal["change_request", "merge"]:
        """The kind of mutation."""
        return "merge" if self.other is not None else "change_request"


@dataclass
class MutationRunner:
    """Calls endpoints that change code; emits an event when a mutation starts, progresses and ends.

    `lineage` and the adapter's `commits` get each one in GEPA's order.
    """

    adapter: RemoteAdapter
    lineage: Lineage
    emit: Emit

    def make(self, wanted: Sequence[MutationRequest]) -> list[MutationEntry | Exception]:
        """Return the outcome of each, applied or rejected; an exception if the server failed or answered badly.

        Raises: as `RemoteAdapter.answers`.
        """
        first = self.adapter.journal.next_number
        executed: set[int] = set()

        def report(one: MutationRequest, request: RecordedRequest, answer: JsonValue) -> None:
            executed.add(request.number)
            self._report(request.number, one, MutationEntry.model_validate(answer))

        calls = [
            KeyedCall(
                request_key(MUTATION, f"{one.kind.replace('_', ' ')}, job {at}", one.candidate, one.mutation),
                self._call(one, first + at),
                lambda entry: entry.model_dump(mode="json", exclude_none=True),
                functools.partial(report, one),
            )
            for at, one in enumerate(wanted)
        ]
        answers = self.adapter.answers("apply_mutation", calls)
        made = [each if isinstance(each, Exception) else MutationEntry.model_validate(each) for each in answers]
        for number, (one, entry) in enumerate(zip(wanted, made, strict=True), first):
            if isinstance(entry, MutationEntry):
                if number not in executed:
                    self._report(number, one, entry)
                self.adapter.commits.add(entry)
                self.lineage.add(entry)
        return made

    def _call(self, wanted: MutationRequest, number: int) -> Call[MutationEntry]:
        run = self.adapter.journal.run_id
        parents = self._parents(wanted)
        begun = MutationStarted(number=number, kind=wanted.kind, parents=parents, request=wanted.request)
        events = _SendingEvents(self.emit, begun)
        return Call(
            "apply_mutation",
            {
                "candidate": wanted.candidate,
                "mutation": wanted.mutation,
                "name": {"run": run, "number": number},
            },
            functools.partial(_applied, wanted),
            about=f"the mutation {run}/{number}",
            needs="mutations",
            timeout_s=MUTATION_LIMIT_S,
            parse_error=functools.partial(_rejected, wanted),
            failure_cost=functools.partial(_failure_cost, wanted.kind),
            on_sent=events.sent,
            on_progress=events.progress,
        )

    def _report(self, number: int, wanted: MutationRequest, entry: MutationEntry) -> None:
        self.emit(mutation_event(number, entry, self._parents(wanted)))

    def _parents(self, wanted: MutationRequest) -> list[int]:
        indices = [self.lineage.index(candidate) for candidate in (wanted.candidate, wanted.other) if candidate]
        return [index for index in indices if index is not None]


@dataclass
class _SendingEvents:
    """Emits that a mutation was sent, once, and its progress, each message once."""

    emit: Emit
    begun: MutationStarted
    started: bool = False
    last_message: str = ""

    def sent(self) -> None:
        if not self.started:
            self.started = True
            self.emit(self.begun)

    def progress(self, progress: Progress) -> None:
        if progress.message and progress.message != self.last_message:
            self.last_message = progress.message
            self.emit(MutationProgress(number=self.begun.number, message=progress.message))


class CodeOutlines:
    """Overviews of candidates' code for the reflection model: requested once per commit, and recorded."""

    def __init__(self, adapter: RemoteAdapter) -> None:
        self._adapter = adapter
        self._known: dict[str | None, str] = {}

    def of(self, candidates: Sequence[Candidate]) -> list[str | Exception]:
        """Return the outline of each candidate's code, or the reason why there is none.

        Raises: as `RemoteAdapter.answers`.
        """
        commits = [commit_of(candidate) for candidate in candidates]
        unknown: dict[str | None, Candidate] = {}  # in the order of GEPA's requests
        for commit, candidate in zip(commits, candidates, strict=True):
            if commit not in self._known:
                unknown.setdefault(commit, candidate)
        calls = [
            KeyedCall(request_key(OUTLINE, f"outline the code at {commit}", commit), self._call(candidate))
            for commit, candidate in unknown.items()
        ]
        made = self._adapter.answers("outline_code", calls) if calls else []
        answers = dict(zip(unknown, made, strict=True))
        self._known |= {commit: answer for commit, answer in answers.items() if isinstance(answer, str)}
        return [self._known[commit] if commit in self._known else answers[commit] for commit in commits]

    def _call(self, candidate: Candidate) -> Call[str]:
        return Call(
            "outline_code",
            {"candidate": candidate},
            lambda answer: Reply(validated(OutlineCodeResult, answer).outline),
            about="outline_code",
            needs="mutations",
        )


def _applied(wanted: MutationRequest, answer: JsonValue) -> Reply[MutationEntry]:
    applied = validated(ApplyMutationResult, answer)
    _check_candidate(wanted, applied)
    return _reply(wanted, "ok", applied)


def _rejected(wanted: MutationRequest, error: Exception, _seconds: float) -> Reply[MutationEntry] | None:
    """Return a final rejection as an answer; None for any other error."""
    if not isinstance(error, rpc_errors.MutationRejected) or error.retryable:
        return None
    return _reply(wanted, "rejected", validated(Rejection, {"reason": error.message, **error.details}))


def _reply(wanted: MutationRequest, outcome: str, result: ApplyMutationResult | Rejection) -> Reply[MutationEntry]:
    entry = MutationEntry(
        kind=wanted.kind,
        request=wanted.request,
        location=wanted.location,
        parent=commit_of(wanted.candidate) or "",
        other=commit_of(wanted.other) if wanted.other is not None else None,
        applied=result if isinstance(result, ApplyMutationResult) else None,
        rejected=result if isinstance(result, Rejection) else None,
    )
    usage = result.usage
    unpriced = entry.kind == "change_request" and (usage is None or usage.cost_usd is None)
    reported = usage.model_dump(exclude_none=True) if usage is not None else None
    return Reply(entry, outcome, usage=reported, unpriced=int(unpriced))


def _failure_cost(kind: str, error: Exception | None, outcome: str) -> FailureCost:
    """Return the cost of an attempt without a result: an agent that worked is paid for; a merge may have needed none.

    An error response without a valid `usage` reports no cost.
    """
    usage: dict[str, Any] | None = None
    if isinstance(error, RpcError) and "usage" in error.details:
        with contextlib.suppress(ValidationError):
            usage = Usage.model_validate(error.details["usage"]).model_dump(exclude_none=True)
    started = kind == "change_request" and outcome != "refused" and not isinstance(error, NEVER_STARTED)
    return FailureCost(usage, int(started and (usage or {}).get("cost_usd") is None))


def _check_candidate(wanted: MutationRequest, applied: ApplyMutationResult) -> None:
    """Raise `BadResponse` unless GEPA can take the candidate: the same components, at the commit that was made."""
    if applied.candidate.keys() != wanted.candidate.keys():
        raise BadResponse("apply_mutation answered a candidate of other components")
    try:
        commit = commit_of(applied.candidate)
        added_to(applied.candidate)
    except ValueError as error:
        raise BadResponse(f"apply_mutation answered a candidate whose {error}") from None
    if commit != applied.commit:
        raise BadResponse(f"apply_mutation answered commit {applied.commit}, and a candidate at {commit}")
