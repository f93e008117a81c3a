"""What users ask of a run is taken between two iterations, recorded, and replayed there."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson
from pydantic import ValidationError

from gepa_client.analysis.ties import best_of
from gepa_client.journal.entries import STEER, SteeringRequest, now
from gepa_client.journal.exported import mistakes
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import RequestKey, request_key
from gepa_client.journal.run_events import Emit, Steered
from gepa_client.journal.steer_entries import (
    Propose,
    SetBudget,
    SteerEntry,
    Withdraw,
    action_of,
    described,
)
from gepa_client.journal.stored_fields import plain
from gepa_client.steering.active_requests import ActiveRequests, ProposalByHand
from gepa_client.steering.candidate_pool import State
from gepa_client.steering.objections import RequestContext, objection
from gepa_client.steering.request_queue import WaitingRequests

MOST_TRIES = 10
"""Iterations that try to evaluate a proposal by hand: GEPA skips a minibatch on which the parent has perfect scores."""

OPTIMIZER = "the optimizer"
"""The author of what the driver itself records."""


@dataclass
class Steering:
    """Takes requests of users and applies them. GEPA's thread alone uses it.

    `queue`: None for a replay, for which nothing waits. `max_tokens`, `program_proposes`, `fixed`: of `RequestContext`.
    `used`: returns what a limit must exceed, by name, for a number of metric calls. `set_limits`: records and applies
    new limits; it is not called on replay, as the limits of a resumed run are in its settings. `on_taken`: called with
    each entry and its number, after it is in force, and whether it is replayed.
    """

    journal: Journal
    emit: Emit
    active_requests: ActiveRequests
    queue: WaitingRequests | None = None
    max_tokens: int | None = None
    program_proposes: bool = False
    used: Callable[[int], Mapping[str, float]] = lambda _calls: {}
    fixed: Mapping[str, str] = field(default_factory=dict)
    set_limits: Callable[[Mapping[str, float]], None] = lambda _limits: None
    on_taken: Callable[[SteerEntry, int, State, bool], None] = lambda _entry, _number, _state, _replayed: None
    _numbers: dict[str, int] = field(default_factory=dict, init=False)

    def advance(self, state: State) -> None:
        """Apply the recorded requests of this place; where the record ends, take those that wait and record them.

        Raises:
            Interrupted: as `Journal.ask`. JournalError: the store cannot be used.
        """
        self.active_requests.current = None
        while (recorded := self.journal.steer_entry()) is not None:
            entry = SteerEntry.model_validate_json(recorded.answer)
            [asked] = self.journal.ask([_key(entry)])
            self._apply(entry, asked.number, state, replayed=True)
        if self.journal.replaying or self.queue is None:
            return
        proposals = self.active_requests.proposals
        if proposals and proposals[0].tries >= MOST_TRIES:
            self._give_up(proposals[0], state)
        for request in self.queue.read():
            self._take(self.queue, request, state)

    def _take(self, queue: WaitingRequests, request: SteeringRequest, state: State) -> None:
        if (number := self._numbers.get(request.id)) is not None:  # its outcome was not written before a crash
            queue.answer(request.id, "taken", number=number)
            return
        try:
            action = action_of(request.action)
            reason = objection(action, self._situation(state))
        except ValidationError as error:
            queue.answer(request.id, "refused", reason=f"it is malformed: {mistakes(error, 'the request')}")
            return
        if reason is not None:
            queue.answer(request.id, "refused", reason=reason)
            self.emit(
                Steered(
                    action=action.kind,
                    text=described(action),
                    author=plain(request.author),
                    created=plain(request.created),
                    refused=plain(reason),
                )
            )
            return
        if isinstance(action, Propose) and action.parent is None:
            action = action.model_copy(
                update={"parent": best_of(state.program_full_scores_val_set, self.active_requests.dropped)}
            )
        if isinstance(action, SetBudget):
            self.set_limits(action.limits)  # first: a request that is not recorded is taken again
        entry = SteerEntry(id=request.id, action=action, author=plain(request.author), created=plain(request.created))
        queue.answer(request.id, "taken", number=self._record(entry, state))

    def _give_up(self, proposal: ProposalByHand, state: State) -> None:
        """Record that a proposal could not be evaluated."""
        action = Withdraw(request=proposal.request)
        self._record(SteerEntry(id=uuid.uuid4().hex, action=action, author=OPTIMIZER, created=now()), state)

    def _record(self, entry: SteerEntry, state: State) -> int:
        """Write an entry at the next number and apply it as a replay will; return the number."""
        [asked] = self.journal.ask([_key(entry)])
        with self.journal.executing([asked]):
            [seen] = self.journal.record((asked, entry.model_dump(mode="json")))
            self.journal.settle()
        self._apply(SteerEntry.model_validate_json(orjson.dumps(seen)), asked.number, state, replayed=False)
        return asked.number

    def _apply(self, entry: SteerEntry, number: int, state: State, *, replayed: bool) -> None:
        self._numbers[entry.id] = number
        self.active_requests.apply(entry, state)
        self.on_taken(entry, number, state, replayed)

    def _situation(self, state: State) -> RequestContext:
        return RequestContext(
            candidates=state.program_candidates,
            best=best_of(state.program_full_scores_val_set, self.active_requests.dropped),
            dropped=self.active_requests.dropped,
            pinned=self.active_requests.pinned,
            max_tokens=self.max_tokens,
            program_proposes=self.program_proposes,
            used=self.used(state.total_num_evals),
            fixed=self.fixed,
            proposals={each.request for each in self.active_requests.proposals},
        )


def _key(entry: SteerEntry) -> RequestKey:
    return request_key(STEER, described(entry.action), entry.id)
