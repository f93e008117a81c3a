"""Has code changed: several mutations at once, each recorded as it comes, a rejection like any other answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gepa_client.errors import BadResponse, Refused
from gepa_client.evolution.branches import run_in_names
from gepa_client.evolution.lineage import Lineage
from gepa_client.evolution.paid_attempts import PaidAttempts
from gepa_client.evolution.patches import totals
from gepa_client.fleet import Answered
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.journal.entries import MUTATION
from gepa_client.journal.gather_recorded import all_at_once
from gepa_client.journal.journal import Slot
from gepa_client.journal.mutation_entry import MutationEntry, Rejection
from gepa_client.journal.requests import other_request
from gepa_client.journal.run_events import Emit, Mutated, MutationProgress, MutationRejected, MutationStarted
from gepa_client.transport.responses import checked
from gepa_client.transport.rpc import RpcClient
from gepa_client.transport.task_group import Job
from protocol import ApplyMutationResult, Candidate, JsonValue, Progress
from protocol import errors as rpc_errors
from protocol.code import GIT_BRANCH, added_to, branch_of, commit_of
from protocol.errors import RpcError

DIFF_TOLD = 64_000
"""Characters of a diff that an event holds; the journal has all of it."""


@dataclass(frozen=True)
class Wanted:
    """A change of a candidate's code. `mutation`: as the contract's; `request`: what it asks for, in words.

    `other`: the candidate whose code is merged in.
    """

    candidate: Candidate
    mutation: dict[str, JsonValue]
    request: str
    location: str | None = None
    other: Candidate | None = None

    @property
    def kind(self) -> Literal["change_request", "merge"]:
        """What kind of mutation it is."""
        return "merge" if self.other is not None else "change_request"


class Mutations:
    """Asks endpoints that change code; tells `emit` what begins, goes on and ends.

    `lineage` and the adapter's `commits` learn of each one in GEPA's order. `timeout_s`: how long one may take.
    """

    def __init__(self, adapter: RemoteAdapter, lineage: Lineage, emit: Emit, timeout_s: float) -> None:
        self._adapter = adapter
        self._lineage = lineage
        self._emit = emit
        self._timeout_s = timeout_s
        self._run = run_in_names(adapter.journal.run_id)

    async def make(self, wanted: Sequence[Wanted]) -> list[MutationEntry | Exception]:
        """What became of each, made or rejected; an exception where the server could not or answered nonsense.

        Raises:
            Interrupted: nothing came of one. RpcError, ClientError: a call itself is wrong.
        """
        journal = self._adapter.journal
        first = journal.next_number
        live: set[int] = set()

        async def apply(at: int, slot: Slot, job: Job) -> JsonValue:
            live.add(at)
            entry = await self._apply(wanted[at], slot, job)
            self._tell(slot.number, wanted[at], entry)
            return entry.model_dump(mode="json", exclude_none=True)

        requests = [
            other_request(MUTATION, f"{one.kind.replace('_', ' ')}, job {at}", one.candidate, one.mutation)
            for at, one in enumerate(wanted)
        ]
        made: list[MutationEntry | Exception] = []
        for at, answer in enumerate(await all_at_once(journal, requests, apply)):
            if isinstance(answer, Exception):
                made.append(answer)
                continue
            entry = MutationEntry.model_validate(answer)
            if at not in live:
                self._tell(first + at, wanted[at], entry)
            self._adapter.commits.learn(entry)
            self._lineage.learn(entry)
            made.append(entry)
        return made

    async def _apply(self, wanted: Wanted, slot: Slot, job: Job) -> MutationEntry:
        name = {"run": self._run, "number": slot.number}
        params = {"candidate": wanted.candidate, "mutation": wanted.mutation, "name": name}
        head = self._head(slot.number, wanted)
        is_agents = wanted.kind == "change_request"  # a merge may need no agent
        attempts = PaidAttempts(self._adapter.journal.attempts(slot, MUTATION), agent=is_agents)

        async def send(client: RpcClient, call_id: str | None) -> Answered[MutationEntry]:
            if not job.begun:
                self._emit(MutationStarted(**head))
            job.begun = True
            try:
                applied = await client.apply_mutation(
                    params, call_id=call_id, timeout_s=self._timeout_s, told=self._progress(slot.number)
                )
            except rpc_errors.MutationRejected as error:
                if error.retryable:
                    attempts.failed(error)
                    raise
                rejected = checked(Rejection, {"reason": error.message, **error.details})
                return self._answered(_entry(wanted, rejected=rejected), "rejected")
            except (RpcError, Refused) as error:
                attempts.failed(error)
                raise
            return self._answered(_entry(wanted, applied=_fitting(wanted, applied)), "ok")

        what = f"the mutation {self._run}/{slot.number}"
        return await self._adapter.fleet.call(what, send, attempts, needs="mutations")

    def _answered(self, entry: MutationEntry, outcome: str) -> Answered[MutationEntry]:
        told = entry.applied or entry.rejected
        usage = told.usage.model_dump(exclude_none=True) if told is not None and told.usage is not None else None
        unpriced = entry.kind == "change_request" and (usage or {}).get("cost_usd") is None
        return Answered(entry, outcome, usage=usage, unpriced=int(unpriced))

    def _progress(self, number: int) -> Callable[[Progress], None]:
        last = [""]

        def told(progress: Progress) -> None:
            if progress.message and progress.message != last[0]:
                last[0] = progress.message
                self._emit(MutationProgress(number=number, message=progress.message))

        return told

    def _tell(self, number: int, wanted: Wanted, entry: MutationEntry) -> None:
        head = self._head(number, wanted)
        if (applied := entry.applied) is not None:
            added, removed = totals(applied.diff)
            self._emit(
                Mutated(
                    **head,
                    branch=branch_of(applied.candidate) or "",
                    commit=applied.commit,
                    files=applied.files,
                    lines_added=added,
                    lines_removed=removed,
                    summary=applied.summary,
                    diff=applied.diff[:DIFF_TOLD],
                    components_added=applied.components_added,
                    components_removed=applied.components_removed,
                    cost_usd=applied.usage.cost_usd if applied.usage is not None else None,
                )
            )
        elif (rejected := entry.rejected) is not None:
            self._emit(
                MutationRejected(
                    **head,
                    stage=rejected.stage,
                    reason=rejected.reason,
                    log_tail=rejected.log_tail,
                    diff=rejected.diff[:DIFF_TOLD] if rejected.diff is not None else None,
                    cost_usd=rejected.usage.cost_usd if rejected.usage is not None else None,
                )
            )

    def _head(self, number: int, wanted: Wanted) -> dict[str, Any]:
        indices = [self._lineage.index(candidate) for candidate in (wanted.candidate, wanted.other) if candidate]
        return {
            "number": number,
            "kind": wanted.kind,
            "parents": [index for index in indices if index is not None],
            "parent_branch": wanted.candidate[GIT_BRANCH],
            "request": wanted.request,
            "location": wanted.location,
        }


def _entry(
    wanted: Wanted, *, applied: ApplyMutationResult | None = None, rejected: Rejection | None = None
) -> MutationEntry:
    return MutationEntry(
        kind=wanted.kind,
        request=wanted.request,
        location=wanted.location,
        parent=commit_of(wanted.candidate) or "",
        other=commit_of(wanted.other) if wanted.other is not None else None,
        applied=applied,
        rejected=rejected,
    )


def _fitting(wanted: Wanted, applied: ApplyMutationResult) -> ApplyMutationResult:
    """The answer, if GEPA can take its candidate: the same components, at the commit that was made."""
    if applied.candidate.keys() != wanted.candidate.keys():
        raise BadResponse("apply_mutation answered a candidate of other components")
    try:
        commit = commit_of(applied.candidate)
        added_to(applied.candidate)
    except ValueError as error:
        raise BadResponse(f"apply_mutation answered a candidate whose {error}") from None
    if commit != applied.commit:
        raise BadResponse(f"apply_mutation answered commit {applied.commit}, and a candidate at {commit}")
    return applied
