"""Settings become the strategies and stoppers of GEPA."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from gepa.api import optimize
from gepa.strategies.proposal_sampling import (
    IndependentSampling,
    PxNSampling,
    SameParentSampling,
    SingleMutationSampling,
)
from gepa.strategies.proposal_selection import BestImprovement, TopKImprovements

from gepa_client.run.stoppers import stoppers
from gepa_client.run.strategies import arguments, sampling, selection
from gepa_client.settings.run_config import RunConfig

URL = ("http://127.0.0.1:1",)
CONFIG = RunConfig(url=URL, max_metric_calls=5)


class State:
    """As much of GEPA's state as stoppers look at."""

    i = 0
    program_full_scores_val_set = (0.5,)
    program_candidates: tuple[dict[str, str], ...] = ({},)


def stops(config: RunConfig) -> list[bool]:
    return [stopper(State()) for stopper in stoppers(config)]  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("proposals", "kind", "fields"),
    [
        ("1", SingleMutationSampling, {}),
        ("3", IndependentSampling, {"n": 3}),
        ("2x4", PxNSampling, {"p": 2, "n": 4}),
    ],
)
def test_proposals_are_a_sampling_strategy_in_short(proposals: str, kind: type, fields: dict[str, int]) -> None:
    built = arguments(RunConfig(url=URL, max_metric_calls=5, proposals=proposals))["sampling_strategy"]
    assert type(built) is kind
    assert vars(built) == fields


def test_a_selection_strategy_is_built_from_its_name() -> None:
    assert isinstance(selection("best"), BestImprovement)
    top = selection("top_k:2")
    assert isinstance(top, TopKImprovements)
    assert top.k == 2


def test_each_setting_of_gepas_stoppers_makes_one() -> None:
    config = RunConfig(url=URL, patience=9, target_score=9.0, max_iterations=9, max_candidates=9)
    assert stops(config) == [False] * 4


def test_no_stopper_of_gepa_reads_the_clock_or_the_disk() -> None:
    assert stoppers(RunConfig(url=URL, max_seconds=9, stop_file=Path("/stop"))) == []


def test_patience_and_a_target_score_are_stoppers() -> None:
    assert stops(RunConfig(url=URL, target_score=0.5)) == [True]
    assert stops(RunConfig(url=URL, target_score=0.6)) == [False]
    [patience] = stoppers(RunConfig(url=URL, patience=2))
    assert [patience(State()) for _ in range(3)] == [False, False, True]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"target_score": 0.5}, "target_score of 0.5 is reached: the best score is 0.5"),
        (
            {"max_candidates": 1},
            "max_candidates of 1 is reached: candidates found: 1",
        ),
        ({"max_iterations": 1}, "max_iterations of 1 is reached: iterations done: 1"),
    ],
)
def test_a_stopper_gives_its_setting_and_what_it_saw_as_the_reason(given: dict[str, Any], reason: str) -> None:
    [stopper] = stoppers(RunConfig(url=URL, max_metric_calls=5, **given))
    assert stopper.reason is None
    assert stopper(State())  # type: ignore[arg-type]
    assert stopper.reason == reason


def test_the_arguments_are_ones_gepa_takes() -> None:
    taken: dict[str, Any] = dict(inspect.signature(optimize).parameters)
    assert set(arguments(CONFIG)) <= set(taken)
