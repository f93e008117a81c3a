"""A proxy between optimizer and server that does everything at random, alone and with all other accidents."""

import time

import pytest

from tests.faults.checking import Undisturbed, check
from tests.faults.conftest import Runs, Serve
from tests.faults.optimizing import LONG_LEASE_S
from tests.faults.proxy import FAULTS, Proxy
from tests.faults.runs import Setup, seeded
from tests.faults.serving import APART_S, PROCESSES

RATE = 0.1
KINDS = 4
"""Of faults that every round must have seen."""


@pytest.mark.variant(0, 2)
def test_a_network_that_loses_and_repeats_costs_nothing(
    number: int, calm_run: Runs, shared_server: Serve, setup: Setup, expected: Undisturbed
) -> None:
    with Proxy(shared_server(setup.components).port, seeded("proxy", number), RATE) as proxy:
        made = calm_run(setup, [proxy.url], lease_s=LONG_LEASE_S)
        made.finish(made.start())
        assert sum(proxy.did[fault] > 0 for fault in FAULTS) >= KINDS, proxy.did
    check(made, expected, lost_examples=0)


@pytest.mark.variant(1, 2)
def test_everything_at_once_costs_what_was_in_flight(
    number: int, run: Runs, own_server: Serve, setup: Setup, expected: Undisturbed
) -> None:
    rng = seeded("everything", number)
    server = own_server(setup.components)
    accidents = ["optimizer", "program", *rng.choices(["optimizer", "server", "program"], k=2)]
    rng.shuffle(accidents)
    with Proxy(server.port, rng, RATE) as proxy:
        made = run(setup, [proxy.url])
        driver = made.start()
        moments = sorted(rng.randint(1, int(expected.lines * 0.9)) for _ in accidents)
        for moment, accident in zip(moments, accidents, strict=True):
            made.wait_for(moment, driver)
            if accident == "optimizer":
                driver.kill("both")
                driver = made.begin_again()
            elif accident == "server":
                server.kill()
                server.start_again()
            else:
                server.kill_a_program_process(rng.random())
                time.sleep(APART_S)
        made.finish(driver)
    lost = len(accidents) * PROCESSES
    check(made, expected, lost_examples=lost, lost_calls=lost)
