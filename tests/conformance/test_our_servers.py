"""The servers this project ships keep the contract: MUST and SHOULD, 60 checks and more each."""

import pytest

from gepa_client.conformance import Verdict, load_checks, run_conformance
from scripts.conformance import IN_A_REPOSITORY, SERVERS, missing, running

OFFERED = {
    "batch",
    "async",
    "partial",
    "cancel",
    "example_timeout",
    "refs",
    "datasets",
    "proposals",
    "scoring",
    "finalize",
    "openrpc",
    "score_trajectories",
    "steps",
    "exact_values",
    "reflective_datasets",
}
SHORT = ("python", "typescript")
"""Run by `make test`."""
NOT_OFFERED = {"adapter_state", "batch_evaluate", "images", "mutations"}
SHOWS_IMAGES = "typescript"
"""How the names of servers begin that offer `images` too."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHORT else [pytest.mark.long]) for name in SERVERS]
)
async def test_a_server_we_ship_passes_every_check_that_applies(name: str) -> None:
    reason = missing(name)
    if reason is not None:
        pytest.skip(reason)
    with running(name) as server:
        report = await run_conformance(server.url, server.token)
    wrong = [f"{o.check.id}: {o.reason}" for o in report.outcomes if o.verdict in (Verdict.FAILED, Verdict.WARNED)]
    assert wrong == []
    assert report.count(Verdict.PASSED) >= 60
    skipped = {o.check.id for o in report.outcomes if o.verdict is Verdict.SKIPPED}
    has_commits = name == IN_A_REPOSITORY
    offered = OFFERED | {"commits"} if has_commits else OFFERED
    not_offered = NOT_OFFERED if has_commits else NOT_OFFERED | {"commits"}
    if name.startswith(SHOWS_IMAGES):
        offered, not_offered = offered | {"images"}, not_offered - {"images"}
    inapplicable = {c.id for c in load_checks() if not_offered & set(c.requires) or offered & set(c.lacks)}
    assert skipped == inapplicable
