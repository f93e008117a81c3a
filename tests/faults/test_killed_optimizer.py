"""`kill -9` of the optimizer at random moments, resumed each time: the same run, and nothing paid twice."""

import re
from typing import cast

from tests.faults import execution_log
from tests.faults.checking import check
from tests.faults.conftest import Expected, Runs, Serve
from tests.faults.optimizing import Victim
from tests.faults.runs import Setup, seeded
from tests.faults.serving import PROCESSES


def test_an_optimizer_killed_at_ties_and_at_test_rows_certifies_the_same(
    number: int, run: Runs, shared_server: Serve, undisturbed: Expected
) -> None:
    setup = Setup(seed=number // 10, train=40, metric_calls=150, tie_rows=10)
    expected = undisturbed(setup)
    assert expected.outcome.certificate is not None
    tied, tested = (
        sum(count for name, count in expected.outcome.entries.items() if re.fullmatch(rf"{part}-.* evaluate", name))
        for part in ("ties", "test")
    )
    rng = seeded("ties and tests", number)
    moments = {
        "ties": expected.lines - tested - rng.randint(PROCESSES + 1, tied - 1),
        "test": expected.lines - rng.randint(2, tested - 2),
    }
    run_ = run(setup, [shared_server(setup.components).url])
    driver = run_.start()
    for part, moment in moments.items():
        run_.wait_for(moment)
        assert driver.kill(cast("Victim", rng.choice(("both", "child"))))
        driver.process.wait(execution_log.LONGEST_WAIT_S)
        assert run_.last_part() == part
        driver = run_.begin_again()
    run_.finish(driver)
    check(run_, expected, lost_examples=len(moments) * PROCESSES)
    assert run_.mismatches() == []
