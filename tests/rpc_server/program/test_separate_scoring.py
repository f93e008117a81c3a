"""A program in one language, its metric in the other: rollouts from one server are scored by another."""

import shutil
from pathlib import Path

import pytest

from gepa_client import RpcClient

PACKAGE = Path(__file__).parents[3] / "clients" / "typescript" / "dist" / "index.js"

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not PACKAGE.is_file(), reason="the TypeScript package has not been built"),
]

AGENT_PY = """
seed_candidate = {"prompt": "x"}
def run(example, candidate, usage):
    print("ran")
    usage["calls"] = 5
    return candidate["prompt"] + example["q"]
"""
JUDGE_JS = """
import { serveStdio } from "%s";
await serveStdio({
  name: "judge",
  score: (example, output, { usage }) => {
    usage.calls = 1;
    console.log("scored");
    if (example.q === "slow") return new Promise(() => {});
    return output === "x" + example.q ? [1, "right"] : 0;
  },
});
"""


async def test_what_one_server_runs_another_scores(tmp_path, fork_server):
    (tmp_path / "agent.py").write_text(AGENT_PY)
    (tmp_path / "judge.mjs").write_text(JUDGE_JS % PACKAGE)
    judge = ("--example-timeout-s", "1", "--command", "node", "judge.mjs")
    batch = [{"id": q, "data": {"q": q}} for q in ("fast", "slow")]
    with (
        fork_server.running_server("--program", "agent.py", cwd=tmp_path) as running,
        fork_server.running_server(*judge, cwd=tmp_path) as scoring,
    ):
        async with (
            RpcClient(running.url, token=running.token) as program,
            RpcClient(scoring.url, token=scoring.token) as scorer,
        ):
            params = {"candidate": {"prompt": "x"}, "batch": batch, "capture_traces": False}
            rollouts = (await program.call("evaluate", params))["results"]
            scored = (await scorer.call("score", {"batch": batch, "results": rollouts}))["results"]
    assert [(one["status"], one["output"]) for one in rollouts] == [("rollout", "xfast"), ("rollout", "xslow")]
    assert [one["usage"] for one in rollouts] == [{"calls": 5}] * 2
    right, slow = scored
    assert (right["status"], right["score"], right["feedback"], right["output"]) == ("ok", 1.0, "right", "xfast")
    assert right["usage"] == {"calls": 1}
    assert (right["log"], slow["error"]["log"], slow.get("log")) == ("ran\nscored\n", "ran\nscored\n", None)
    assert (slow["status"], slow["score"], slow["error"]["type"], slow["output"]) == (
        "timeout",
        None,
        "timeout",
        "xslow",
    )
