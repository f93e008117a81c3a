"""Every check passes a correct server and catches a broken one."""

import pytest

from gepa_client.conformance import Check, Verdict, load_checks, run_conformance
from tests.conformance.defects import DEFECTS
from tests.conformance.reference_server import TOKEN, Reference

CHECKS = {check.id: check for check in load_checks()}
CAUGHT = [(defect.name, check_id) for defect in DEFECTS for check_id in defect.checks.split()]


def timeout_of(check: Check) -> float:
    """The time that a server's examples have for this check."""
    return 0.5 if check.id.startswith("deadlines.") else 30.0


@pytest.mark.parametrize("lacks", sorted({tuple(check.lacks) for check in CHECKS.values()}), ids=str)
@pytest.mark.parametrize("timeout_s", [0.5, 30.0])
async def test_a_correct_server_passes(lacks: tuple[str, ...], timeout_s: float) -> None:
    chosen = [check for check in CHECKS.values() if (tuple(check.lacks), timeout_of(check)) == (lacks, timeout_s)]
    async with Reference(without=frozenset(lacks), example_timeout_s=timeout_s) as server:
        report = await run_conformance(server.url, TOKEN, checks=chosen)
    assert [(o.check.id, o.reason) for o in report.outcomes if o.verdict is not Verdict.PASSED] == []
    assert len(report.outcomes) == len(chosen)


@pytest.mark.parametrize(("defect", "check_id"), CAUGHT)
async def test_a_broken_server_is_caught(defect: str, check_id: str) -> None:
    check = CHECKS[check_id]
    without = frozenset(check.lacks)
    async with Reference(broken=defect, without=without, example_timeout_s=timeout_of(check)) as server:
        report = await run_conformance(server.url, TOKEN, checks=[check])
    assert report.outcomes[0].verdict is (Verdict.FAILED if check.level == "must" else Verdict.WARNED)


def test_each_check_has_one_broken_server() -> None:
    assert sorted(check.id for check in load_checks()) == sorted(check_id for _, check_id in CAUGHT)
