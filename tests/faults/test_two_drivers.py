"""Several processes resume the same run: one drives it, the others name the driver, and take over if it is dead."""

import time

from tests.faults import execution_log
from tests.faults.checking import check
from tests.faults.conftest import Expected, Runs, Serve
from tests.faults.optimizing import LEASE_S
from tests.faults.runs import Setup, seeded
from tests.faults.serving import PROCESSES


def test_of_two_that_resume_a_dead_ones_run_one_takes_over_after_its_lease_and_the_other_names_it(
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
    assert (made.status(), made.claimed()) == ("running", True)
    before = time.monotonic()
    rivals = [made.resume(), made.resume()]
    ends = [rival.wait() for rival in rivals]
    assert time.monotonic() - before >= LEASE_S
    losers = [end for end in ends if end.status != 0]
    assert len(losers) < 2, "\n".join(map(str, ends))
    for loser in losers:  # none if the processors were so busy that the second began when the first had ended
        assert "is driven by pid " in loser.stderr + loser.stdout
    assert (made.status(), made.claimed()) == ("completed", False)
    check(made, expected, lost_examples=PROCESSES, lost_calls=PROCESSES)
