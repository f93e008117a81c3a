"""A wall clock that jumps by hours, both ways: no lease, limit or order depends on it."""

from pathlib import Path

from tests.faults.checking import Undisturbed, check
from tests.faults.conftest import Runs, Serve
from tests.faults.runs import Setup
from tests.faults.serving import PROCESSES
from tests.faults.test_killed_optimizer import kill_and_resume

CLOCK = Path(__file__).parent / "jumping_clock"


def test_a_clock_that_jumps_changes_nothing(
    number: int, run: Runs, shared_server: Serve, setup: Setup, expected: Undisturbed
) -> None:
    made = run(setup, [shared_server(setup.components).url], environment={"PYTHONPATH": str(CLOCK)})
    kills = kill_and_resume(made, expected.lines, number, most=1)
    check(made, expected, lost_examples=kills * PROCESSES, lost_calls=kills * PROCESSES)
