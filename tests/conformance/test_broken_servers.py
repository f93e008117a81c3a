"""Every check passes a correct server and catches at least one broken one."""

import pytest

from gepa_client.conformance import Check, CheckOutcome, Verdict, load_checks, run_conformance
from tests.conformance.defects import DEFECTS
from tests.conformance.reference_server import TOKEN, Reference

CHECKS = {check.id: check for check in load_checks()}
CAUGHT = [(defect.name, check_id) for defect in DEFECTS for check_id in defect.checks]


async def outcome_of(check: Check, broken: str = "") -> CheckOutcome:
    """The check's outcome against a reference server that is as the check needs it."""
    timeout_s = 0.5 if check.id.startswith("deadlines.") else 30.0
    async with Reference(broken=broken, without=frozenset(check.lacks), example_timeout_s=timeout_s) as server:
        report = await run_conformance(server.url, TOKEN, checks=[check])
    return report.outcomes[0]


@pytest.mark.parametrize("check_id", CHECKS)
async def test_a_correct_server_passes(check_id: str) -> None:
    outcome = await outcome_of(CHECKS[check_id])
    assert (outcome.verdict, outcome.reason) == (Verdict.PASSED, "")


@pytest.mark.parametrize(("defect", "check_id"), CAUGHT)
async def test_a_broken_server_is_caught(defect: str, check_id: str) -> None:
    check = CHECKS[check_id]
    outcome = await outcome_of(check, broken=defect)
    assert outcome.verdict is (Verdict.FAILED if check.level == "must" else Verdict.WARNED)


def test_no_check_is_without_a_broken_server() -> None:
    assert set(CHECKS) == {check_id for _, check_id in CAUGHT}


def test_defects_are_named_once() -> None:
    names = [defect.name for defect in DEFECTS]
    assert len(names) == len(set(names))
