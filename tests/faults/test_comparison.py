"""The comparison itself: it must see every way in which a run can differ, or run something twice."""

from dataclasses import replace

from tests.faults.execution_log import Execution
from tests.faults.outcome import Executions, Outcome, differences, faults

OUTCOME = Outcome(
    status="completed",
    candidates=[{"part0": "start"}, {"part0": "start red"}],
    parents=[[None], [0]],
    scores=[{"12": 0.2}, {"12": 0.6}],
    found_at=[8, 26],
    metric_calls=40,
    test_scores={"0": 0.25, "1": 0.5},
    entries={"search evaluate": 40},
    certificate={"verdict": "improved"},
)


def ran(name: str, at: float, row: int = 1, candidate: str = "a") -> Execution:
    return Execution(name, row, candidate, at)


OTHERS: list[dict[str, object]] = [
    {"status": "paused"},
    {"candidates": [{"part0": "start"}, {"part0": "start green"}]},
    {"candidates": OUTCOME.candidates[::-1]},
    {"candidates": OUTCOME.candidates[:1]},
    {"parents": [[None], [None]]},
    {"scores": [{"12": 0.2}, {"12": 0.6000001}]},
    {"found_at": [8, 27]},
    {"metric_calls": 41},
    {"test_scores": {"0": 0.25}},
    {"entries": {"search evaluate": 41}},
    {"certificate": {"verdict": "worse"}},
]


def test_any_difference_between_runs_is_reported() -> None:
    assert differences(OUTCOME, replace(OUTCOME)) == []
    for other in OTHERS:
        [fault] = differences(OUTCOME, replace(OUTCOME, **other))  # type: ignore[arg-type]
        assert fault.startswith(next(iter(other)))


def test_what_was_lost_and_run_again_is_what_an_accident_may_cost() -> None:
    executions = Executions([ran("lost", 1.0), ran("kept", 2.0)], frozenset({"kept"}))
    assert faults(executions, in_flight=1) == []


def test_a_recorded_example_that_runs_again_is_reported_even_if_some_were_in_flight() -> None:
    executions = Executions([ran("kept", 1.0), ran("again", 2.0)], frozenset({"kept"}))
    [fault] = faults(executions, in_flight=4)
    assert "though their results were recorded" in fault


def test_fresh_traces_are_counted_apart() -> None:
    executions = Executions([ran("kept", 1.0), ran("traced", 2.0)], frozenset({"kept"}), retraces=1)
    assert faults(executions, in_flight=0) == []


def test_a_recorded_answer_without_an_execution_is_reported() -> None:
    [fault] = faults(Executions([], frozenset({"invented"})), in_flight=0)
    assert "never were" in fault
