"""Several processes resume the same run: one drives it, the others name the driver, and take over if it is dead."""

import time

import pytest

from tests.faults import execution_log
from tests.faults.checking import check
from tests.faults.conftest import Expected, Runs, Serve
from tests.faults.mongo import Mongo
from tests.faults.optimizing import LEASE_S
from tests.faults.runs import Setup, seeded
from tests.faults.serving import PROCESSES


def test_of_two_that_resume_a_run_at_once_one_wins_and_the_other_names_it(
    number: int, run: Runs, shared_server: Serve, undisturbed: Expected
) -> None:
    setup = Setup(seed=number // 10)
    expected = undisturbed(setup)
    rng = seeded("two", number)
    made = run(setup, [shared_server(setup.components).url])
    first = made.start()
    moment = rng.randint(1, int(expected.lines * 0.7))
    execution_log.until(lambda: made.reached(moment), f"line {moment}")
    first.kill("both")
    rivals = [made.resume(), made.resume()]
    ends = [rival.wait() for rival in rivals]
    winners = [end for end in ends if end.status == 0]
    assert len(winners) == 1, "\n".join(map(str, ends))
    [loser] = [end for end in ends if end is not winners[0]]
    assert "is driven by pid " in loser.stderr + loser.stdout
    check(made, expected, lost_examples=PROCESSES, lost_calls=PROCESSES)


def test_a_run_that_is_driven_is_left_alone(run: Runs, shared_server: Serve) -> None:
    setup = Setup(metric_calls=5000)
    made = run(setup, [shared_server(setup.components).url])
    first = made.start()
    execution_log.until(lambda: made.reached(1), "the first example")
    second = made.resume().wait()
    assert second.status != 0, str(second)
    assert f"is driven by pid {first.child} on " in second.stderr + second.stdout
    assert first.process.poll() is None
    assert made.status() == "running"


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("mongodb", marks=pytest.mark.long)])
def test_another_process_takes_over_a_dead_ones_run_after_its_lease(
    kind: str, run: Runs, shared_server: Serve, undisturbed: Expected, request: pytest.FixtureRequest
) -> None:
    setup = Setup()
    expected = undisturbed(setup)
    mongo: Mongo | None = request.getfixturevalue("mongo") if kind == "mongodb" else None
    made = run(setup, [shared_server(setup.components).url], store=mongo.url if mongo else None)
    first = made.start()
    execution_log.until(lambda: made.reached(expected.lines // 2), "half of the run")
    first.kill("both")
    assert made.status() == "running"
    assert made.claimed()
    before = time.monotonic()
    second = made.resume()
    ended = made.finish(second)
    assert time.monotonic() - before >= LEASE_S
    assert ended.status == 0
    assert (made.status(), made.claimed()) == ("completed", False)
    check(made, expected, lost_examples=PROCESSES, lost_calls=PROCESSES)
