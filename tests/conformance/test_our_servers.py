"""The servers this project ships keep the contract: MUST and SHOULD, 60 checks and more each, nothing unverified."""

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gepa_client.conformance import ConformanceReport, Verdict, load_checks, run_conformance
from rpc_server.cli.conformance_program import seed_candidate
from sandbox_runtime import running_server
from scripts.conformance import GEPA_SERVER, IN_A_REPOSITORY, NODE_PROGRAM, SERVERS, missing, running

OFFERED = {
    *("batch", "async", "partial", "cancel", "example_timeout", "refs", "datasets", "proposals", "scoring"),
    *("finalize", "openrpc", "score_trajectories", "steps", "exact_values", "reflective_datasets"),
}
NOT_OFFERED = {"adapter_state", "batch_evaluate", "images", "mutations"}
SHORT = ("python", "typescript")
"""Run by `make test`."""
SHOWS_IMAGES = ("gepa-server-node", "typescript")
"""Servers that offer `images` too."""

PACKAGE = Path(NODE_PROGRAM).parents[1] / "index.js"
PYTHON = "def score(example, output):\n    return 1.0\n"
NODE = "import { serve, serveStdio } from '%s';\nawait %s({ name: 'judge', score: () => 1 });\n"
SCORERS = {
    "python": (PYTHON, [GEPA_SERVER, "--program", "judge.py"]),
    "gepa-server-node": (NODE % (PACKAGE, "serveStdio"), [GEPA_SERVER, "--command", "node", "judge.mjs"]),
    "typescript": (NODE % (PACKAGE, "serve"), ["node", "judge.mjs"]),
}
SERVED = Path(__file__).parent / "served"


def wrong(report: ConformanceReport, *others: Verdict) -> list[str]:
    return [f"{o.check.id}: {o.reason}" for o in report.outcomes if o.verdict in (Verdict.FAILED, *others)]


def of_all(names: Iterable[str], short: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in short else [pytest.mark.long]) for name in names]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", of_all(SERVERS, SHORT))
async def test_a_server_we_ship_passes_every_check_that_applies(name: str) -> None:
    if (reason := missing(name)) is not None:
        pytest.skip(reason)
    with running(name) as server:
        report = await run_conformance(server.url, server.token)
    assert wrong(report, Verdict.WARNED, Verdict.NOT_VERIFIED) == []
    assert report.count(Verdict.PASSED) >= 60
    skipped = {o.check.id for o in report.outcomes if o.verdict is Verdict.SKIPPED}
    has_commits = name == IN_A_REPOSITORY
    offered = OFFERED | {"commits"} if has_commits else OFFERED
    not_offered = NOT_OFFERED if has_commits else NOT_OFFERED | {"commits"}
    if name in SHOWS_IMAGES:
        offered, not_offered = offered | {"images"}, not_offered - {"images"}
    assert skipped == {c.id for c in load_checks() if not_offered & set(c.requires) or offered & set(c.lacks)}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", of_all(SCORERS, ("python",)))
async def test_a_server_that_only_scores_passes_every_check_that_applies(name: str, tmp_path: Path) -> None:
    source, command = SCORERS[name]
    if "node" in command and (shutil.which("node") is None or not PACKAGE.is_file()):
        pytest.skip("node is not installed, or the TypeScript package has not been built")
    (tmp_path / ("judge.py" if source is PYTHON else "judge.mjs")).write_text(source)
    checks = [
        check for check in load_checks() if check.id.startswith(("core.", "scoring.", "reflection.", "datasets."))
    ]
    with running_server(command, cwd=tmp_path) as server:
        report = await run_conformance(server.url, server.token, checks=checks)
    assert wrong(report, Verdict.WARNED) == []
    passed = {outcome.check.id for outcome in report.outcomes if outcome.verdict is Verdict.PASSED}
    assert {"scoring.lengths", "core.evaluate.empty", "core.candidate.unknown", "core.discover.digest"} <= passed


async def test_a_served_adapter_passes_the_checks_of_several_candidates_and_images() -> None:
    command = [GEPA_SERVER, "--adapter", "images_adapter:Adapter", "--name", "conformance", "--python", sys.executable]
    applicable = [check for check in load_checks() if {"batch_evaluate", "images"} & set(check.requires)]
    checks = [check for check in applicable if "partial" not in check.requires]  # an adapter ends its batch as a whole
    with running_server([*command, "--seed-candidate", json.dumps(seed_candidate)], cwd=SERVED) as endpoint:
        report = await run_conformance(endpoint.url, endpoint.token, checks=checks)
    assert [(o.check.id, o.reason) for o in report.outcomes if o.verdict is not Verdict.PASSED] == []
    assert len(report.outcomes) == 9
