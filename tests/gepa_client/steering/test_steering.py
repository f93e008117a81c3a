"""Requests are in force from the iteration that takes them, as the record has them."""

from types import SimpleNamespace
from typing import Any

import pytest

from gepa_client.journal.entries import SteeringRequest
from gepa_client.journal.journal import Journal
from gepa_client.steering.steering import MOST_TRIES, ActiveRequests, Steering


class Queue:
    """Requests that a test adds, with their outcomes."""

    def __init__(self) -> None:
        self.requests: list[SteeringRequest] = []
        self.outcomes: list[tuple[str, object]] = []

    def add(self, kind: str, **fields: Any) -> str:
        self.requests.append(SteeringRequest(f"{kind}-{len(self.outcomes)}", {"kind": kind, **fields}, "ann", "now"))
        return self.requests[-1].id

    def read(self) -> list[SteeringRequest]:
        taken, self.requests = self.requests, []
        return taken

    def answer(self, request_id: str, _outcome: str, *, number: int | None = None, reason: str | None = None) -> None:
        self.outcomes.append((request_id, reason if number is None else number))


@pytest.fixture
def steering() -> Any:
    queue: Any = Queue()
    return Steering(Journal("a-run"), lambda _event: None, ActiveRequests(), queue)


@pytest.fixture
def state() -> Any:
    """GEPA's, with three candidates; candidate 1 is the best, and alone on the front of row 0."""
    scores = [{0: 0.1}, {0: 0.9}, {0: 0.5}]
    return SimpleNamespace(
        program_candidates=[{"rules": text} for text in "abc"],
        program_full_scores_val_set=[0.1, 0.9, 0.5],
        prog_candidate_val_subscores=scores,
        total_num_evals=3,
        pareto_front_valset={0: 0.9},
        program_at_pareto_front_valset={0: {1}},
        objective_pareto_front={"speed": 0.7},
        program_at_pareto_front_objectives={"speed": {1}},
        prog_candidate_objective_scores=[{"speed": 0.2}, {"speed": 0.7}, {"speed": 0.4}],
        pareto_front_cartesian={},
        program_at_pareto_front_cartesian={},
    )


def test_a_candidate_that_is_dropped_leaves_the_fronts_and_is_no_parent_of_texts_by_hand(
    steering: Any, state: Any
) -> None:
    steering.queue.add("propose", texts={"rules": "d"})
    steering.advance(state)
    steering.queue.add("drop", candidate=1)
    steering.queue.add("propose", texts={"rules": "e"})
    steering.advance(state)
    assert [proposal.parent for proposal in steering.active_requests.proposals] == [1, 2], (
        "the best one, of those that are left"
    )
    assert (state.pareto_front_valset, state.program_at_pareto_front_valset) == ({0: 0.5}, {0: {2}})
    assert (state.objective_pareto_front, state.program_at_pareto_front_objectives) == ({"speed": 0.4}, {"speed": {2}})


def test_pins_and_hints_end_when_a_user_ends_them(steering: Any, state: Any) -> None:
    steering.queue.add("pin", candidate=2)
    steering.queue.add("hint", text="warm")
    steering.advance(state)
    assert (steering.active_requests.pinned, steering.active_requests.hints()) == (2, ("warm",))
    steering.queue.add("unpin")
    steering.queue.add("clear_hints")
    steering.advance(state)
    assert (steering.active_requests.pinned, steering.active_requests.hints()) == (None, ())


def test_texts_by_hand_that_cannot_be_evaluated_are_given_up(steering: Any, state: Any) -> None:
    steering.queue.add("propose", texts={"rules": "d"})
    steering.advance(state)
    for _ in range(MOST_TRIES):
        assert len(steering.active_requests.proposals) == 1
        steering.active_requests.begin(steering.active_requests.proposals[0])
        steering.advance(state)
    assert not steering.active_requests.proposals


def test_a_request_whose_outcome_was_not_written_is_not_taken_twice(steering: Any, state: Any) -> None:
    request = steering.queue.add("hint", text="warm")
    again = steering.queue.requests[0]
    steering.advance(state)
    steering.queue.requests = [again]
    steering.advance(state)
    assert steering.queue.outcomes == [(request, 0)] * 2
    assert steering.active_requests.hints() == ("warm",)
