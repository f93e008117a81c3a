"""A wall clock that jumps by hours, both ways: no lease, limit or order depends on it."""

import time
from pathlib import Path
from typing import cast

from tests.faults import execution_log
from tests.faults.checking import Undisturbed, check
from tests.faults.conftest import Runs, Serve
from tests.faults.optimizing import Victim
from tests.faults.runs import Setup, seeded
from tests.faults.serving import PROCESSES

CLOCK = Path(__file__).parent / "jumping_clock"
VICTIMS = ("both", "parent", "child")


def test_a_clock_that_jumps_changes_nothing(
    number: int, run: Runs, shared_server: Serve, setup: Setup, expected: Undisturbed
) -> None:
    made = run(setup, [shared_server(setup.components).url], environment={"PYTHONPATH": str(CLOCK)})
    rng = seeded("optimizer", number)
    driver = made.start()
    made.wait_for(rng.randint(0, int(expected.lines * 0.9)), driver)
    time.sleep(rng.uniform(0, 0.05))  # between two lines, too
    assert driver.kill(cast("Victim", rng.choice(VICTIMS)))
    driver.process.wait(execution_log.LONGEST_WAIT_S)
    made.finish(made.begin_again())
    check(made, expected, lost_examples=PROCESSES, lost_calls=PROCESSES)
