"""A program in one language, its metric in the other: rollouts from one server are scored by another."""

import shutil
import sys
from pathlib import Path

import pytest

from gepa_client import RpcClient
from sandbox_runtime import running_server

PACKAGE = Path(__file__).parents[3] / "clients" / "typescript" / "dist" / "index.js"
SERVER = str(Path(sys.executable).with_name("gepa-server"))

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
AGENT_JS = """
import { serve, serveStdio } from "%s";
await %s({
  name: "agent",
  seedCandidate: { prompt: "x" },
  run: (example, candidate, { usage }) => {
    console.log("ran");
    usage.calls = 5;
    return candidate.prompt + example.q;
  },
});
"""
JUDGE_PY = """
import time
def score(example, output, usage):
    usage["calls"] = 1
    print("scored", flush=True)
    if example["q"] == "slow":
        time.sleep(60)
    return (1.0, "right") if output == "x" + example["q"] else 0.0
"""
JUDGE_JS = """
import { serve, serveStdio } from "%s";
await %s({
  name: "judge",
  score: (example, output, { usage }) => {
    usage.calls = 1;
    console.log("scored");
    if (example.q === "slow") return new Promise(() => {});
    return output === "x" + example.q ? [1, "right"] : 0;
  },
});
"""
NICENESS = [SERVER, "--example-timeout-s", "1", "--command", "node"]
AGENTS = {
    "python": (AGENT_PY, "agent.py", [SERVER, "--program"]),
    "typescript": (AGENT_JS % (PACKAGE, "serve"), "agent.mjs", ["node"]),
    "gepa-server-node": (AGENT_JS % (PACKAGE, "serveStdio"), "agent.mjs", NICENESS),
}
JUDGES = {
    "python": (JUDGE_PY, "judge.py", [SERVER, "--example-timeout-s", "1", "--program"]),
    "gepa-server-node": (JUDGE_JS % (PACKAGE, "serveStdio"), "judge.mjs", NICENESS),
}
PAIRS = [("typescript", "python"), ("gepa-server-node", "python"), ("python", "gepa-server-node")]


def command_for(folder: Path, given):
    source, name, command = given
    (folder / name).write_text(source)
    return [*command, name]


@pytest.mark.parametrize(
    ("agent", "judge"), [PAIRS[-1], *(pytest.param(*pair, marks=pytest.mark.long) for pair in PAIRS[:-1])]
)
async def test_what_one_server_runs_another_scores(tmp_path, agent, judge):
    batch = [{"id": q, "data": {"q": q}} for q in ("fast", "slow")]
    with (
        running_server(command_for(tmp_path, AGENTS[agent]), cwd=tmp_path) as running,
        running_server(command_for(tmp_path, JUDGES[judge]), cwd=tmp_path) as scoring,
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
