"""Settings become the strategies and stoppers of GEPA."""

import pytest
from gepa.strategies.proposal_sampling import IndependentSampling, PxNSampling, SingleMutationSampling
from gepa.strategies.proposal_selection import BestImprovement, TopKImprovements

from gepa_client.run.stops import LEAST_IDLE, NothingNewStop, stoppers
from gepa_client.run.strategies import arguments, selection
from gepa_client.settings.run_config import RunConfig

URL = ("http://127.0.0.1:1",)


class State:
    """As much of GEPA's state as stoppers look at."""

    i = 0
    total_num_evals = 0
    program_full_scores_val_set = (0.5,)
    program_candidates: tuple[dict[str, str], ...] = ({},)


@pytest.mark.parametrize(
    ("proposals", "kind", "fields"),
    [("1", SingleMutationSampling, {}), ("3", IndependentSampling, {"n": 3}), ("2x4", PxNSampling, {"p": 2, "n": 4})],
)
def test_proposals_are_a_sampling_strategy_in_short(proposals: str, kind: type, fields: dict[str, int]) -> None:
    built = arguments(RunConfig(url=URL, max_metric_calls=5, proposals=proposals))["sampling_strategy"]
    assert type(built) is kind
    assert vars(built) == fields


def test_a_selection_strategy_is_built_from_its_name() -> None:
    assert isinstance(selection("best"), BestImprovement)
    assert vars(selection("top_k:2")) == vars(TopKImprovements(2))


def test_patience_is_a_stopper() -> None:
    [patience] = stoppers(RunConfig(url=URL, patience=2))
    assert [patience(State()) is not None for _ in range(3)] == [False, False, True]  # type: ignore[arg-type]


def test_a_search_is_over_once_so_many_iterations_in_a_row_evaluated_nothing() -> None:
    stop, state, evaluated = NothingNewStop(), State(), 60
    for state.i in range(evaluated + LEAST_IDLE):
        state.total_num_evals = 1 if state.i < evaluated else 2
        assert stop(state) is None, state.i  # type: ignore[arg-type]
    state.i += 1
    assert "the last 100 iterations evaluated nothing new" in (stop(state) or "")  # type: ignore[arg-type]
