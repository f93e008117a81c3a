"""A request that a run cannot take is refused with what is wrong and what to do instead."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gepa_client.journal.steer_entries import AnyAction, Drop, Hint, Pin, Propose, SetBudget, Withdraw
from gepa_client.run.stops import perfect_stop, stoppers
from gepa_client.settings.run_config import RunConfig
from gepa_client.steering.user_requests import RequestContext, objection

CANDIDATES = [{"rules": "a", "git_branch": "main"}, {"rules": "b", "tone": "x", "git_branch": "main"}, {"rules": "c"}]
SITUATION = RequestContext(CANDIDATES, best=1, used={"max_metric_calls": 40, "max_seconds": 1.5}, proposals={"mine"})


@pytest.mark.parametrize(
    "action",
    [
        Propose(texts={"rules": "d"}),
        Propose(texts={"rules": "b"}, parent=0),
        Propose(texts={"rules": "b", "tone": "y"}),
        Withdraw(request="mine"),
        Pin(candidate=2),
        Drop(candidate=0),
        Hint(text="warm"),
        SetBudget(max_metric_calls=41, max_cost_usd=0.001),
    ],
)
def test_a_run_takes_what_it_can(action: AnyAction) -> None:
    assert objection(action, SITUATION) is None


@pytest.mark.parametrize(
    ("action", "situation", "reason"),
    [
        (Propose(texts={"rules": " b\n"}), {}, "candidate 1 has these texts already"),
        (Propose(texts={"git_branch": "x"}), {}, "git_branch is code"),
        (Propose(texts={"rules": "d"}, parent=2), {"dropped": {2}}, "candidate 2 was dropped"),
        (Propose(texts={"rules": "d" * 41}), {"max_tokens": 10}, "11 tokens, more than `max_component_tokens` 10"),
        (Withdraw(request="other"), {}, "no proposal by hand other waits"),
        (Pin(candidate=2), {"dropped": {2}}, "was dropped, so it is no parent"),
        (Drop(candidate=2), {"pinned": 2}, "is pinned: unpin it first"),
        (Drop(candidate=2), {"dropped": {2}}, "was dropped before"),
        (Hint(text="warm"), {"program_proposes": True}, "hints need a run with `reflection_lm`"),
        (SetBudget(max_metric_calls=40), {}, "`max_metric_calls` 40 is not above the 40 that"),
        (SetBudget(max_cost_usd=9), {"fixed": {"max_cost_usd": "the gateway holds it"}}, "the gateway holds it"),
        (SetBudget(max_cost_usd=None), {}, "names at least one limit"),
    ],
)
def test_a_run_states_why_it_does_not_take_the_rest(action: AnyAction, situation: dict[str, Any], reason: str) -> None:
    assert reason in (objection(action, replace(SITUATION, **situation)) or "")


def test_a_candidate_that_was_dropped_ends_no_run_by_its_score() -> None:
    scores = [{0: 0.5}, {0: 1.0}]
    state: Any = SimpleNamespace(
        program_candidates=[{}, {}], prog_candidate_val_subscores=scores, program_full_scores_val_set=[0.5, 1.0]
    )
    for dropped, ends in ((set(), True), ({1}, False)):
        [target] = stoppers(RunConfig(url=("http://127.0.0.1:1",), target_score=1.0), dropped)
        for stop in (target, perfect_stop(1.0, dropped, "validation", sampled=False)):
            assert (stop(state) is not None) is ends
