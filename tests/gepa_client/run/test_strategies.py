"""The words of a configuration become GEPA's own objects."""

import inspect
from typing import Any

import pytest
from gepa.api import optimize
from gepa.strategies.proposal_sampling import IndependentSampling, PxNSampling, SameParentSampling
from gepa.strategies.proposal_selection import BestImprovement, TopKImprovements

from gepa_client.run.config import STOPPERS, RunConfig
from gepa_client.run.strategies import arguments, sampling, selection, stopper

CONFIG = RunConfig(url="http://127.0.0.1:1", max_metric_calls=5)


@pytest.mark.parametrize(
    ("text", "kind", "fields"),
    [
        ("same_parent:4", SameParentSampling, {"n": 4}),
        ("independent:3", IndependentSampling, {"n": 3}),
        ("pxn:2x4", PxNSampling, {"p": 2, "n": 4}),
    ],
)
def test_a_sampling_strategy_is_built_from_its_name_and_numbers(text: str, kind: type, fields: dict[str, int]) -> None:
    built = sampling(text)
    assert type(built) is kind
    assert vars(built) == fields


def test_a_selection_strategy_is_built_from_its_name() -> None:
    assert isinstance(selection("best"), BestImprovement)
    top = selection("top_k:2")
    assert isinstance(top, TopKImprovements)
    assert top.k == 2


@pytest.mark.parametrize("kind", STOPPERS)
def test_every_stopper_can_be_built(kind: str) -> None:
    class State:
        i = 0
        program_full_scores_val_set = (0.5,)
        program_candidates: tuple[dict[str, str], ...] = ({},)

    assert stopper(f"{kind}:9")(State()) in (True, False)  # type: ignore[arg-type]


def test_the_arguments_are_ones_gepa_takes() -> None:
    taken: dict[str, Any] = dict(inspect.signature(optimize).parameters)
    assert set(arguments(CONFIG)) <= set(taken)
    assert arguments(CONFIG)["stop_callbacks"] is None
