"""Several processes resume the same run: one drives it, the others name the driver, and take over if it is dead."""

import time

from tests.faults.checking import Undisturbed, check
from tests.faults.conftest import Runs, Serve
from tests.faults.optimizing import LEASE_S
from tests.faults.runs import Setup, seeded
from tests.faults.serving import PROCESSES


def test_of_two_that_resume_a_dead_ones_run_one_takes_over_after_its_lease_and_the_other_names_it(
    number: int, run: Runs, shared_server: Serve, setup: Setup, expected: Undisturbed
) -> None:
    rng = seeded("two", number)
    made = run(setup, [shared_server(setup.components).url])
    first = made.start()
    moment = rng.randint(1, int(expected.lines * 0.7))
    made.wait_for(moment)
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
