"""What users ask of a run is taken between two iterations, recorded and replayed there, and changes the search."""

import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import orjson
from gepa.core.state import GEPAState
from gepa.proposer.reflective_mutation.base import CandidateSelector, ReflectionComponentSelector
from gepa.strategies.batch_sampler import BatchSampler
from gepa.strategies.component_selector import AllReflectionComponentSelector, RoundRobinReflectionComponentSelector
from gepa.strategies.proposal_sampling import ProposalTask, SamplingStrategy
from pydantic import ValidationError

from gepa_client.analysis.ties import best_of
from gepa_client.gepa.reflection_strategies import TextProposal
from gepa_client.journal.entries import PROPOSAL, STEER, SteeringRequest, now
from gepa_client.journal.export_format import mistakes
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
from gepa_client.steering.user_requests import RequestContext, WaitingRequests, objection

State = GEPAState[Any, Any]


class PoolWithout:
    """A `GEPAState` without some candidates, as candidate selectors and stop conditions read it.

    `indices`: those of the candidates that are left. Everything but the members below is the state's own.
    """

    def __init__(self, state: State, dropped: Set[int]) -> None:
        self._state = state
        self.indices = [index for index in range(len(state.program_candidates)) if index not in dropped]

    @property
    def program_candidates(self) -> list[dict[str, str]]:
        """The texts of the candidates that are left."""
        return self._left(self._state.program_candidates)

    @property
    def program_full_scores_val_set(self) -> list[float]:
        """Their mean validation scores."""
        return self._left(self._state.program_full_scores_val_set)

    @property
    def per_program_tracked_scores(self) -> list[float]:
        """The scores that Pareto selection weighs them by."""
        return self._left(self._state.per_program_tracked_scores)

    def get_pareto_front_mapping(self) -> dict[Any, set[int]]:
        """Return which of them are best, by row or objective; the best one by mean score if no front has any."""
        places = {index: place for place, index in enumerate(self.indices)}
        found = {
            key: {places[index] for index in front if index in places}
            for key, front in self._state.get_pareto_front_mapping().items()
        }
        fronts = {key: front for key, front in found.items() if front}
        scores = self.program_full_scores_val_set
        return fronts or {"best": {scores.index(max(scores))}}

    def _left(self, values: Sequence[Any]) -> list[Any]:
        return [values[index] for index in self.indices]

    def __getattr__(self, name: str) -> Any:
        """Return what the state has."""
        return getattr(self._state, name)


def leave_fronts(state: State, index: int, dropped: Set[int]) -> None:
    """Take a candidate off the Pareto fronts, so that neither selection nor merges make it a parent.

    Where it was the only one, the best of the candidates that are not `dropped` take its place. For fronts of rows and
    objectives together GEPA keeps no scores of the others, so such a place is empty until the next candidate.
    """
    of_rows = (state.pareto_front_valset, state.program_at_pareto_front_valset, state.prog_candidate_val_subscores)
    of_objectives = (
        *(state.objective_pareto_front, state.program_at_pareto_front_objectives),
        state.prog_candidate_objective_scores,
    )
    of_both = (state.pareto_front_cartesian, state.program_at_pareto_front_cartesian, ())
    kinds: Any = (of_rows, of_objectives, of_both)
    for highest, fronts, scores in kinds:
        kept = [(each, found) for each, found in enumerate(scores) if each not in dropped and each != index]
        for key in [key for key, front in fronts.items() if index in front]:
            fronts[key].discard(index)
            if fronts[key]:
                continue
            left = {each: found[key] for each, found in kept if key in found}
            if left:
                highest[key] = max(left.values())
                fronts[key] = {each for each, score in left.items() if score == highest[key]}
            else:
                del highest[key], fronts[key]


@dataclass
class ProposalByHand:
    """Texts that a user gave for some components of a parent. `tries`: iterations that began with it."""

    request: str
    author: str
    parent: int
    texts: dict[str, str]
    tries: int = 0


@dataclass
class _ActiveHint:
    text: str
    left: int | None


@dataclass
class ActiveRequests:
    """`proposals`: those that are not evaluated yet; `current`: the one that this iteration evaluates."""

    pinned: int | None = None
    dropped: set[int] = field(default_factory=set)
    proposals: deque[ProposalByHand] = field(default_factory=deque)
    current: ProposalByHand | None = None
    _hints: list[_ActiveHint] = field(default_factory=list)

    def hints(self) -> tuple[str, ...]:
        """Return the texts that prompts of reflection show now."""
        return tuple(hint.text for hint in self._hints)

    def count_proposals(self, proposals: int) -> None:
        """Count down the hints that hold for a number of proposals."""
        for hint in self._hints:
            hint.left = None if hint.left is None else hint.left - proposals
        self._hints = [hint for hint in self._hints if hint.left is None or hint.left > 0]

    def begin(self, proposal: ProposalByHand) -> None:
        """Note that this iteration evaluates a proposal by hand."""
        self.current = proposal
        proposal.tries += 1

    def propose(self, journal: Journal) -> TextProposal:
        """Return the texts that this iteration evaluates, as an answer of the journal like those of reflection.

        Raises:
            Interrupted: as `Journal.ask`.
        """
        found = self.proposals.popleft()
        self.current = None
        about = f"propose the texts of request {found.request} by {found.author}"
        [asked] = journal.ask([request_key(PROPOSAL, about, found.texts)])
        if asked.entry is None:
            with journal.executing([asked]):
                journal.record((asked, dict(found.texts)))
                journal.settle()
        return TextProposal(dict(found.texts), by_hand=found.author, request=found.request)

    def apply(self, entry: SteerEntry, state: State) -> None:
        """Apply a request; limits of the run are not part of it."""
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
                self._hints.append(_ActiveHint(text, proposals))
            case ClearHints():
                self._hints = []


COMPONENT_SELECTORS = {"round_robin": RoundRobinReflectionComponentSelector, "all": AllReflectionComponentSelector}
"""GEPA's own, by the names that it takes for them."""


NoParents = Callable[[State, Set[int]], Set[int]]
"""Returns the candidates that are no parents, given those that users dropped."""


@dataclass
class SteeredParents:
    """Selects a candidate that is pinned, else one that is neither dropped nor one of the `no_parents`."""

    selector: CandidateSelector
    active_requests: ActiveRequests
    no_parents: NoParents

    def select_candidate_idx(self, state: State) -> int:
        """Return the index of a parent."""
        if self.active_requests.pinned is not None:
            return self.active_requests.pinned
        out = self.active_requests.dropped | self.no_parents(state, self.active_requests.dropped)
        if not out:
            return self.selector.select_candidate_idx(state)
        pool: Any = PoolWithout(state, out)
        return int(pool.indices[self.selector.select_candidate_idx(pool)])


@dataclass
class SteeredStrategies:
    """GEPA's sampling strategy and its component selector, as users steer them.

    A proposal by hand has an iteration of its own, with its parent and its components.
    """

    sampling: SamplingStrategy[Any, Any]
    selector: ReflectionComponentSelector
    active_requests: ActiveRequests
    no_parents: NoParents

    def sample_tasks(
        self, state: State, candidate_selector: CandidateSelector, batch_sampler: BatchSampler[Any, Any], trainset: Any
    ) -> list[ProposalTask[Any, Any]]:
        """Return the pairs of parent and minibatch of one iteration."""
        if not self.active_requests.proposals:
            parents: Any = SteeredParents(candidate_selector, self.active_requests, self.no_parents)
            return self.sampling.sample_tasks(state, parents, batch_sampler, trainset)
        proposal = self.active_requests.proposals[0]
        self.active_requests.begin(proposal)
        rows = batch_sampler.next_minibatch_ids(trainset, state)
        return [ProposalTask(proposal.parent, state.program_candidates[proposal.parent], rows, trainset.fetch(rows))]

    def __call__(
        self,
        state: State,
        trajectories: list[Any],
        subsample_scores: list[float],
        candidate_idx: int,
        candidate: dict[str, str],
    ) -> list[str]:
        """Return the components that a task changes."""
        if self.active_requests.current is not None:
            return list(self.active_requests.current.texts)
        return self.selector(state, trajectories, subsample_scores, candidate_idx, candidate)


def steered(
    arguments: dict[str, Any],
    active_requests: ActiveRequests,
    no_parents: NoParents = lambda _state, _dropped: frozenset(),
) -> dict[str, Any]:
    """Return the arguments of `gepa.optimize` with its strategies steered."""
    named = arguments["module_selector"]
    selector = COMPONENT_SELECTORS[named]() if isinstance(named, str) else named
    strategies = SteeredStrategies(arguments["sampling_strategy"], selector, active_requests, no_parents)
    return arguments | {"sampling_strategy": strategies, "module_selector": strategies}


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
