"""The servers this project ships keep the contract: MUST and SHOULD, 60 checks and more each."""

import pytest

from gepa_client.conformance import Verdict, load_checks, run_conformance
from sandbox_runtime import running_server
from scripts.conformance import ROOT, SERVERS, missing

OFFERED = {"batch", "async", "cancel", "refs", "datasets", "proposals", "scoring", "finalize", "openrpc"}
NOT_OFFERED = {"adapter_state", "commits", "mutations"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_we_ship_passes_every_check_that_applies(name: str) -> None:
    reason = missing(name)
    if reason is not None:
        pytest.skip(reason)
    with running_server(SERVERS[name], cwd=ROOT) as server:
        report = await run_conformance(server.url, server.token)
    wrong = [f"{o.check.id}: {o.reason}" for o in report.outcomes if o.verdict in (Verdict.FAILED, Verdict.WARNED)]
    assert wrong == []
    assert report.count(Verdict.PASSED) >= 60
    skipped = {o.check.id for o in report.outcomes if o.verdict is Verdict.SKIPPED}
    inapplicable = {check.id for check in load_checks() if NOT_OFFERED & set(check.requires)}
    assert skipped == {f"{name}.not_offered" for name in OFFERED} | inapplicable
