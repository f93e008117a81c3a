"""Settings become the strategies and stoppers of GEPA."""

from gepa.strategies.proposal_selection import BestImprovement, TopKImprovements

from gepa_client.run.stoppers import stoppers
from gepa_client.run.strategies import selection
from gepa_client.settings.run_config import RunConfig

URL = ("http://127.0.0.1:1",)


class State:
    """As much of GEPA's state as stoppers look at."""

    i = 0
    program_full_scores_val_set = (0.5,)
    program_candidates: tuple[dict[str, str], ...] = ({},)


def stops(config: RunConfig) -> list[bool]:
    return [stopper(State()) for stopper in stoppers(config)]  # type: ignore[arg-type]


def test_a_selection_strategy_is_built_from_its_name() -> None:
    assert isinstance(selection("best"), BestImprovement)
    top = selection("top_k:2")
    assert isinstance(top, TopKImprovements)
    assert top.k == 2


def test_patience_and_a_target_score_are_stoppers() -> None:
    assert stops(RunConfig(url=URL, target_score=0.5)) == [True]
    assert stops(RunConfig(url=URL, target_score=0.6)) == [False]
    [patience] = stoppers(RunConfig(url=URL, patience=2))
    assert [patience(State()) for _ in range(3)] == [False, False, True]  # type: ignore[arg-type]
