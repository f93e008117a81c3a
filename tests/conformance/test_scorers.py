"""Servers whose program only scores: checked like any other, and nothing they do breaks the contract."""

import shutil
import sys
from pathlib import Path

import pytest

from gepa_client.conformance import Verdict, run_conformance
from sandbox_runtime import running_server
from scripts.conformance import NODE_PROGRAM

GEPA_SERVER = str(Path(sys.executable).with_name("gepa-server"))
PACKAGE = Path(NODE_PROGRAM).parents[1] / "index.js"
PYTHON = "def score(example, output):\n    return 1.0\n"
NODE = "import { serve, serveStdio } from '%s';\nawait %s({ name: 'judge', score: () => 1 });\n"

SERVERS = {
    "python": (PYTHON, [GEPA_SERVER, "--program", "judge.py"]),
    "gepa-server-node": (NODE % (PACKAGE, "serveStdio"), [GEPA_SERVER, "--command", "node", "judge.mjs"]),
    "typescript": (NODE % (PACKAGE, "serve"), ["node", "judge.mjs"]),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    ["python", *(pytest.param(name, marks=pytest.mark.long) for name in SERVERS if name != "python")],
)
async def test_a_server_that_only_scores_passes_every_check_that_applies(name: str, tmp_path: Path) -> None:
    source, command = SERVERS[name]
    if "node" in command and (shutil.which("node") is None or not PACKAGE.is_file()):
        pytest.skip("node is not installed, or the TypeScript package has not been built")
    (tmp_path / ("judge.py" if source is PYTHON else "judge.mjs")).write_text(source)
    with running_server(command, cwd=tmp_path) as server:
        report = await run_conformance(server.url, server.token)
    wrong = [f"{o.check.id}: {o.reason}" for o in report.outcomes if o.verdict in (Verdict.FAILED, Verdict.WARNED)]
    assert wrong == []
    passed = {outcome.check.id for outcome in report.outcomes if outcome.verdict is Verdict.PASSED}
    assert {"scoring.lengths", "core.evaluate.empty", "core.candidate.unknown", "core.discover.digest"} <= passed
    assert len(passed) >= 60
