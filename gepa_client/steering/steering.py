"""What users asked of a run, as far as it is in force: taken between two iterations, recorded, and replayed there."""

import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson
from pydantic import ValidationError

from gepa_client.analysis.ties import best_of
from gepa_client.gepa.reflection_strategies import TextProposal
from gepa_client.journal.entries import PROPOSAL, STEER, SteeringRequest, now
from gepa_client.journal.exported import mistakes
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import RequestKey, request_key
from gepa_client.journal.run_events import Emit, Steered
from gepa_client.journal.steer_entries import (
    ClearHints,
    Drop,
    Hint,
    Pin,
    Propose,
    SetBudget,
    SteerEntry,
    Unpin,
    Withdraw,
    action_of,
    described,
)
from gepa_client.journal.stored_fields import plain
from gepa_client.steering.candidate_pool import State, leave_fronts
from gepa_client.steering.objections import Situation, objection
from gepa_client.steering.request_queue import PolledQueue

MOST_TRIES = 10
"""Iterations that try to evaluate a proposal by hand: GEPA skips a minibatch on which the parent has perfect scores."""

OPTIMIZER = "the optimizer"
"""The author of what the driver itself records."""


@dataclass
class ProposalByHand:
    """Texts that a user gave for some components of a parent. `tries`: iterations that began with it."""

    request: str
    author: str
    parent: int
    texts: dict[str, str]
    tries: int = 0


@dataclass
class _HintInForce:
    text: str
    left: int | None


@dataclass
class Steering:
    """The requests of users that are in force. GEPA's thread alone uses it.

    `queue`: None for a replay, for which nothing waits. `max_tokens`, `program_proposes`, `fixed`: as in `Situation`.
    `used`: returns what a limit must exceed, by name, for a number of metric calls. `set_limits`: records and applies
    new limits; it is not called on replay, as the limits of a resumed run are in its settings. `on_taken`: called with
    each entry and its number, after it is in force, and whether it is replayed.
    """

    journal: Journal
    emit: Emit
    queue: PolledQueue | None = None
    max_tokens: int | None = None
    program_proposes: bool = False
    used: Callable[[int], Mapping[str, float]] = lambda _calls: {}
    fixed: Mapping[str, str] = field(default_factory=dict)
    set_limits: Callable[[Mapping[str, float]], None] = lambda _limits: None
    on_taken: Callable[[SteerEntry, int, State, bool], None] = lambda _entry, _number, _state, _replayed: None
    pinned: int | None = field(default=None, init=False)
    dropped: set[int] = field(default_factory=set, init=False)
    proposals: deque[ProposalByHand] = field(default_factory=deque, init=False)
    """Those that are not evaluated yet."""
    current: ProposalByHand | None = field(default=None, init=False)
    """The one that this iteration evaluates."""
    _hints: list[_HintInForce] = field(default_factory=list, init=False)
    _numbers: dict[str, int] = field(default_factory=dict, init=False)

    def hints(self) -> tuple[str, ...]:
        """Return the texts that prompts of reflection show now."""
        return tuple(hint.text for hint in self._hints)

    def reflected(self, proposals: int) -> None:
        """Note that so many proposals were asked for with these hints."""
        for hint in self._hints:
            hint.left = None if hint.left is None else hint.left - proposals
        self._hints = [hint for hint in self._hints if hint.left is None or hint.left > 0]

    def begin(self, proposal: ProposalByHand) -> None:
        """Note that this iteration evaluates a proposal by hand."""
        self.current = proposal
        proposal.tries += 1

    def propose(self) -> TextProposal:
        """Return the texts that this iteration evaluates, as an answer of the journal like those of reflection.

        Raises:
            Interrupted: as `Journal.ask`.
        """
        found = self.proposals.popleft()
        self.current = None
        about = f"propose the texts of request {found.request} by {found.author}"
        [asked] = self.journal.ask([request_key(PROPOSAL, about, found.texts)])
        if asked.entry is None:
            with self.journal.executing([asked]):
                self.journal.record((asked, dict(found.texts)))
                self.journal.settle()
        return TextProposal(dict(found.texts), by_hand=found.author, request=found.request)

    def advance(self, state: State, *, at_once: bool = False) -> None:
        """Apply the recorded requests of this place; where the record ends, take those that wait and record them.

        Raises:
            Interrupted: as `Journal.ask`. JournalError: the store cannot be used.
        """
        self.current = None
        while (recorded := self.journal.steer_entry()) is not None:
            entry = SteerEntry.model_validate_json(recorded.answer)
            [asked] = self.journal.ask([_key(entry)])
            self._apply(entry, asked.number, state, replayed=True)
        if self.journal.replaying or self.queue is None:
            return
        if self.proposals and self.proposals[0].tries >= MOST_TRIES:
            self._give_up(self.proposals[0], state)
        for request in self.queue.waiting(at_once=at_once):
            self._take(self.queue, request, state)

    def _take(self, queue: PolledQueue, request: SteeringRequest, state: State) -> None:
        if (number := self._numbers.get(request.id)) is not None:  # its outcome was not written before a crash
            queue.taken(request.id, number)
            return
        try:
            action = action_of(request.action)
            reason = objection(action, self._situation(state))
        except ValidationError as error:
            queue.refused(request.id, f"it is malformed: {mistakes(error, 'the request')}")
            return
        if reason is not None:
            queue.refused(request.id, reason)
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
            action = action.model_copy(update={"parent": best_of(state.program_full_scores_val_set, self.dropped)})
        if isinstance(action, SetBudget):
            self.set_limits(action.limits)  # first: a request that is not recorded is taken again
        entry = SteerEntry(id=request.id, action=action, author=plain(request.author), created=plain(request.created))
        queue.taken(request.id, self._record(entry, state))

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
        match entry.action:
            case Propose(texts=texts, parent=parent):
                self.proposals.append(ProposalByHand(entry.id, entry.author, parent or 0, dict(texts)))
            case Withdraw(request=request):
                self.proposals = deque(each for each in self.proposals if each.request != request)
            case Pin(candidate=index):
                self.pinned = index
            case Unpin():
                self.pinned = None
            case Drop(candidate=index):
                self.dropped.add(index)
                leave_fronts(state, index, self.dropped)
            case Hint(text=text, proposals=proposals):
                self._hints.append(_HintInForce(text, proposals))
            case ClearHints():
                self._hints = []
        self.on_taken(entry, number, state, replayed)

    def _situation(self, state: State) -> Situation:
        return Situation(
            candidates=state.program_candidates,
            best=best_of(state.program_full_scores_val_set, self.dropped),
            dropped=self.dropped,
            pinned=self.pinned,
            max_tokens=self.max_tokens,
            program_proposes=self.program_proposes,
            used=self.used(state.total_num_evals),
            fixed=self.fixed,
            proposals={each.request for each in self.proposals},
        )


def _key(entry: SteerEntry) -> RequestKey:
    return request_key(STEER, described(entry.action), entry.id)
