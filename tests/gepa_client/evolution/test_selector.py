"""Which component a step changes: code or a prompt, by turns, or so many prompts after each step of code."""

from types import SimpleNamespace

import pytest

from gepa_client.run.strategies import ComponentSelector
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH

C, A = GIT_BRANCH, ADDED_COMPONENTS
PLAIN = {C: "main@" + "a" * 40, "x": "1", "y": "2", A: "{}"}
GROWN = {**PLAIN, A: '{"z": "3"}'}


def steps(candidate, count, *, unused=(), evolve="both", **settings):
    """What is chosen in so many calls for one candidate; components joined by +."""
    turns = {"named_predictor_id_to_update_next_for_program_candidate": [0]}
    state = SimpleNamespace(list_of_named_predictors=list(PLAIN), **turns)
    selector = ComponentSelector(evolve, lambda _: frozenset(unused), **settings)
    return ["+".join(selector(state, [], [], 0, candidate)) for _ in range(count)]


@pytest.mark.parametrize(
    ("wanted", "candidate", "settings"),
    [
        ([C, "x", "y", C, "x"], PLAIN, {}),
        ([C, "x", "y", A, C], GROWN, {}),
        (["x", "y", "x", "y"], PLAIN, {"evolve": "prompts"}),
        ([C, C, C], GROWN, {"evolve": "code"}),
        ([C, "y", C, "y"], PLAIN, {"unused": ["x"]}),
        ([C, "x", "y", C], GROWN, {"unused": ["z"]}),
        ([f"{C}+x+y+{A}"], GROWN, {"all_at_once": True}),
        ([""], PLAIN, {"unused": ["x", "y"], "evolve": "prompts"}),
    ],
)
def test_steps_follow_the_settings(wanted, candidate, settings):
    assert steps(candidate, len(wanted), **settings) == wanted
