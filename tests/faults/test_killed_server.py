"""`kill -9` of servers and of program processes: the run continues automatically and has the same result."""

import time

import pytest

from tests.faults import execution_log
from tests.faults.checking import Undisturbed, check
from tests.faults.conftest import Runs, Serve
from tests.faults.optimizing import LONG_LEASE_S
from tests.faults.runs import MINIBATCH, VAL, Setup, seeded
from tests.faults.serving import APART_S, PROCESSES


@pytest.mark.variant(0, 3)
def test_a_killed_server_that_comes_back_costs_what_was_in_flight(
    number: int, calm_run: Runs, own_server: Serve, setup: Setup, expected: Undisturbed
) -> None:
    rng = seeded("server", number)
    server = own_server(setup.components)
    made = calm_run(setup, [server.url], lease_s=LONG_LEASE_S)
    driver = made.start()
    kills = 0
    for moment in sorted(rng.randint(0, int(expected.lines * 0.9)) for _ in range(rng.randint(1, 2))):
        made.wait_for(moment, driver)
        time.sleep(rng.uniform(0.0, 0.03))
        if moment == 0:  # a run cannot begin with a server that is not there
            made.wait_for(1)
        server.kill()
        kills += 1
        time.sleep(rng.uniform(0.0, 0.3))
        server.start_again()
    ended = driver.wait()
    assert ended.status == 0, str(ended)
    check(made, expected, lost_examples=kills * PROCESSES, lost_calls=kills * PROCESSES)


@pytest.mark.long
def test_a_killed_program_process_costs_what_ran_in_it(
    number: int, calm_run: Runs, own_server: Serve, setup: Setup, expected: Undisturbed
) -> None:
    rng = seeded("program", number)
    server = own_server(setup.components)
    made = calm_run(setup, [server.url], lease_s=LONG_LEASE_S)
    driver = made.start()
    kills = 0
    for moment in sorted(rng.randint(0, int(expected.lines * 0.9)) for _ in range(rng.randint(1, 3))):
        made.wait_for(moment, driver)
        kills += server.kill_a_program_process(rng.random())
        time.sleep(APART_S)
    ended = driver.wait()
    assert ended.status == 0, str(ended)
    assert kills > 0
    check(made, expected, lost_examples=kills * PROCESSES, lost_calls=kills * PROCESSES)


@pytest.mark.variant(2, 3)
def test_an_optimizer_killed_while_it_repeats_lost_traces_can_be_resumed(
    number: int, run: Runs, own_server: Serve, setup: Setup, expected: Undisturbed
) -> None:
    rng = seeded("traces", number)
    server = own_server(setup.components)
    made = run(setup, [server.url])
    driver = made.start()
    traced = 2 * MINIBATCH  # the parents of the first iteration, right after the seed's validation
    made.wait_for(VAL + rng.randint(2, traced - 1))
    server.kill()
    server.start_again()
    execution_log.until(lambda: made.retracing() or driver.process.poll() is not None, "fresh traces being made")
    time.sleep(rng.uniform(0, 0.08))  # until after them, too
    driver.kill("both")
    made.finish(made.resume())
    check(made, expected, lost_examples=2 * PROCESSES, lost_calls=2 * PROCESSES)
