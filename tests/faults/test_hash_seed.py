"""Merge walks sets of names: with five components a run must not depend on the hash seed of the process."""

import pytest

from tests.faults.checking import check
from tests.faults.conftest import Expected, Runs, Serve
from tests.faults.runs import Setup, seeded
from tests.faults.serving import PROCESSES


@pytest.mark.long
def test_merge_with_five_components_is_the_same_under_any_hash_seed(
    number: int, run: Runs, shared_server: Serve, undisturbed: Expected
) -> None:
    setup = Setup(components=5, merge=True)
    expected = undisturbed(setup)
    assert any(len(parents) > 1 for parents in expected.outcome.parents), "nothing was merged"
    rng = seeded("hash", number)
    seeds = [str(rng.randint(1, 2**32 - 1)) for _ in range(2)]
    made = run(setup, [shared_server(setup.components).url], environment={"PYTHONHASHSEED": seeds[0]})
    driver = made.start()
    moment = rng.randint(1, int(expected.lines * 0.9))
    made.wait_for(moment, driver)
    driver.kill("both")
    made.environment["PYTHONHASHSEED"] = seeds[1]
    made.finish(made.begin_again())
    check(made, expected, lost_examples=PROCESSES, lost_calls=PROCESSES)
