"""Which component a step changes: code or a prompt, by turns, by a schedule, up to a last step."""

from types import SimpleNamespace

import pytest

from gepa_client.evolution.selector import ComponentSelector, Schedule
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH

C, A = GIT_BRANCH, ADDED_COMPONENTS
PLAIN = {C: "main@" + "a" * 40, "x": "1", "y": "2", A: "{}"}
GROWN = {**PLAIN, A: '{"z": "3"}'}


def steps(candidate, count, *, tasks=1, unused=(), evolve="both", **settings):
    """What is chosen in so many calls, `tasks` of them in each iteration, for one candidate; components joined by +."""
    state = SimpleNamespace(
        i=0, list_of_named_predictors=list(PLAIN), named_predictor_id_to_update_next_for_program_candidate=[0]
    )
    selector = ComponentSelector(evolve, lambda _: frozenset(unused), **settings)
    chosen = []
    for call in range(count):
        state.i = call // tasks
        chosen.append("+".join(selector(state, [], [], 0, candidate)))
    return chosen


@pytest.mark.parametrize(
    ("wanted", "candidate", "settings"),
    [
        ([C, "x", "y", C, "x"], PLAIN, {}),
        ([C, "x", "y", A, C], GROWN, {}),
        (["x", "y", "x", "y"], PLAIN, {"evolve": "prompts"}),
        ([C, C, C], GROWN, {"evolve": "code"}),
        ([C, "y", C, "y"], PLAIN, {"unused": ["x"]}),
        ([C, "x", "y", C], GROWN, {"unused": ["z"]}),
        ([C, "x", "y", "x", "y"], PLAIN, {"code_until": 2}),
        ([f"{C}+x+y", f"{C}+x+y", "x+y"], PLAIN, {"all_at_once": True, "code_until": 2}),
        ([f"{C}+x+y+{A}"], GROWN, {"all_at_once": True}),
        ([C, "x", "y", C, "x", "y", C], PLAIN, {"schedule": Schedule(2)}),
        ([C, "x+y", C, "x+y"], PLAIN, {"schedule": Schedule(1), "all_at_once": True}),
        ([C, "x", C, "y", "x", "y", "x"], PLAIN, {"schedule": Schedule(1, 3.0, 3)}),
        ([C, C], {**PLAIN, "x": "1"}, {"schedule": Schedule(3), "unused": ["x", "y"]}),
        ([""], PLAIN, {"code_until": 1, "tasks": 1, "unused": ["x", "y"], "evolve": "prompts"}),
        ([C, "x", C, "y"], PLAIN, {"schedule": Schedule(1), "tasks": 2}),
    ],
)
def test_steps_follow_the_settings(wanted, candidate, settings):
    assert steps(candidate, len(wanted), **settings) == wanted


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        (Schedule(4), [4, 4, 4]),
        (Schedule(2, 1.5, 10), [2, 3, 4]),  # 4.5 is rounded to the even number, as Python rounds
        (Schedule(1, 1e300, 1), [1, 10**9, 10**9]),
    ],
)
def test_prompts_per_code_grow_with_the_iterations(schedule, wanted):
    assert [schedule.prompts_after_code(done) for done in (0, 10, 20)] == wanted
