"""The servers this project ships keep the contract: MUST and SHOULD, 60 checks and more each."""

import pytest

from gepa_client.conformance import Verdict, run_conformance
from sandbox_runtime import running_server
from scripts.conformance import ROOT, SERVERS, missing

ABSENT_CAPABILITIES = {"batch", "async", "cancel", "refs", "datasets", "proposals", "scoring", "finalize", "openrpc"}


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
    assert skipped == {f"{name}.not_offered" for name in ABSENT_CAPABILITIES} | {"adapter_state.round_trip"}
