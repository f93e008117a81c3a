"""Have code changed, several mutations at once, each recorded as it ends; and outlines of code for the next ones."""

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from gepa_client.errors import BadResponse, Refused
from gepa_client.evolution.lineage import Lineage
from gepa_client.evolution.mutation_events import mutation_event
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.journal.answer_entries import MutationEntry, Rejection
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
