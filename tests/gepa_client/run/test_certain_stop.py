"""A search ends when a further gain that matters is unlikely, with the numbers in words."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from evolverpc_common.settings.sources import SettingsError
from gepa_client.run.stoppers import CertainStop
from gepa_client.settings.loading import load
from tests.gepa_client.conftest import Ran
from tests.gepa_client.word_program import Script, rows

URL = {"url": ["http://127.0.0.1:1"]}


@dataclass
class State:
    """As much of GEPA's state as the stopper looks at: 10 validation rows, 6 calls an iteration."""

    i: int
    program_full_scores_val_set: list[float]
    num_metric_calls_by_discovery: list[int]
    prog_candidate_val_subscores: list[dict[int, float]] = field(default_factory=lambda: [dict.fromkeys(range(10), 0)])

    @property
    def total_num_evals(self) -> int:
        return 10 + 6 * (self.i + 1)


def stops(state: State, gain: float = 0.05, calls: int | None = 670, iterations: int | None = None) -> str | None:
    stopper = CertainStop(gain, calls, iterations)
    stopped = stopper(state)  # type: ignore[arg-type]  # as much of it as is used
    assert stopped == (stopper.reason is not None)
    return stopper.reason


def test_a_search_whose_gains_became_small_and_rare_ends_with_the_numbers() -> None:
    state = State(99, [0.2, 0.5, 0.55, 0.54, 0.56], [0, 30, 60, 90, 120])
    assert stops(state) == (
        "stop_when_certain of 0.05 is reached: a chance of 4 % that the best score of 0.56 rises by more "
        "in 10 further iterations; it rose 3 times in 100, 0 of them in the later half, the later ones by 0.03 on "
        "average"
    )


@pytest.mark.parametrize(
    ("state", "limits"),
    [
        (State(99, [0.2, 0.5, 0.55, 0.56], [0, 30, 400, 500]), {}),  # it still rises
        (State(99, [0.2, 0.5, 0.55, 0.56], [0, 30, 60, 120]), {"calls": 2000}),  # much is left
        (State(99, [0.2, 0.5, 0.55, 0.56], [0, 30, 60, 120]), {"gain": 0.01}),  # small gains matter
        (State(5, [0.2], [0]), {"calls": 60}),  # the record is short
    ],
)
def test_a_search_that_may_gain_continues(state: State, limits: dict[str, Any]) -> None:
    assert stops(state, **limits) is None


def test_the_nearer_of_two_limits_counts() -> None:
    state = State(99, [0.2, 0.5, 0.55, 0.56], [0, 30, 60, 120])
    assert stops(state, calls=2000) is None
    assert "10 further iterations" in (stops(state, calls=2000, iterations=110) or "")


def test_it_needs_a_limit_that_it_can_judge() -> None:
    with pytest.raises(SettingsError, match="give `--max-metric-calls` or `--max-iterations` too"):
        load(None, URL | {"stop_when_certain": 0.1, "max_seconds": 5})


def test_a_run_ends_so_and_a_replay_repeats_it(serve: Callable[[Script], str], cli: Callable[..., Ran]) -> None:
    stuck = Script(datasets={"train": rows(9), "val": rows(6, 100)}, propose=lambda _params: {"texts": {"rules": "x"}})
    ended = cli(
        *("optimize", serve(stuck), "--stop-when-certain", 0.1, "--max-iterations", 50, "--no-check", "--json"),
    )
    assert ended.status == 0, ended.stderr
    reason = ended.event("finished")["reason"]
    assert reason.startswith("stop_when_certain of 0.1 is reached")
    assert cli("replay", "last", "--json").event("finished")["reason"] == reason
