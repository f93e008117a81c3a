"""`evolverpc serve` with a GEPA adapter passes the checks of the capabilities that only adapters offer."""

import json
import sys
from pathlib import Path

from gepa_client.conformance import Verdict, load_checks, run_conformance
from rpc_server.program.conformance_program import seed_candidate
from sandbox_runtime import running_server
from scripts.conformance import GEPA_SERVER

SERVED = Path(__file__).parent / "served"
CAPABILITIES = {"batch_evaluate", "images"}


async def test_a_served_adapter_passes_the_checks_of_several_candidates_and_images() -> None:
    command = [GEPA_SERVER, "--adapter", "images_adapter:Adapter", "--name", "conformance", "--python", sys.executable]
    applicable = [check for check in load_checks() if CAPABILITIES & set(check.requires)]
    checks = [check for check in applicable if "partial" not in check.requires]  # an adapter ends its batch as a whole
    with running_server([*command, "--seed-candidate", json.dumps(seed_candidate)], cwd=SERVED) as endpoint:
        report = await run_conformance(endpoint.url, endpoint.token, checks=checks)
    assert [(o.check.id, o.reason) for o in report.outcomes if o.verdict is not Verdict.PASSED] == []
    assert len(report.outcomes) == 9
