"""One program of three prompts in Python and in TypeScript: the same records for each component, byte for byte."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sandbox_runtime import running_server

PACKAGE = Path(__file__).parents[3] / "clients" / "typescript" / "dist" / "index.js"
SERVER = str(Path(sys.executable).with_name("gepa-server"))
COMPONENTS = ["planner", "solver", "checker"]
SEEDS = [0, 12345, 2**53 - 1]

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not PACKAGE.is_file(), reason="the TypeScript package has not been built"),
]

PYTHON = """
seed_candidate = {"planner": "Plan.", "solver": "Solve.", "checker": "Check."}

def run(example, candidate, trace):
    if example["n"] == 5:
        trace.append("no step")
        return "none"
    with trace.step("planner", question=example["q"], messages=[{"role": "user", "content": example["q"]}]) as step:
        step.outputs = {"plan": [example["q"], None, True, 0.5]}
    if example["n"] == 4:
        return "early"
    with trace.step("solver", plan=example["q"]) as step:
        for turn in range(example["n"]):
            with trace.step("checker", turn=turn) as check:
                check.outputs = "é" * turn
        step.outputs = "solved"
    if example["n"] == 3:
        try:
            with trace.step("checker", turn="last"):
                raise trace.parse_failure("nonsense", "{yes: or no}")
        except Exception:
            pass
    return "done"

def score(example, output):
    return {"score": example["n"] / 8, "feedback": "so so", "component_feedback": {"solver": "solve " + example["q"]}}
"""
TYPESCRIPT = """
import { serve } from "%s";
await serve({
  name: "three",
  seedCandidate: { planner: "Plan.", solver: "Solve.", checker: "Check." },
  async run(example, candidate, context) {
    if (example.n === 5) {
      context.trace.push("no step");
      return "none";
    }
    const messages = [{ role: "user", content: example.q }];
    await context.step("planner", { question: example.q, messages }, () => ({ plan: [example.q, null, true, 0.5] }));
    if (example.n === 4) return "early";
    await context.step("solver", { plan: example.q }, async () => {
      for (let turn = 0; turn < example.n; turn += 1) {
        await context.step("checker", { turn }, () => "é".repeat(turn));
      }
      return "solved";
    });
    if (example.n === 3) {
      try {
        await context.step("checker", { turn: "last" }, () => {
          throw context.parseFailure("nonsense", "{yes: or no}");
        });
      } catch {}
    }
    return "done";
  },
  score: (example) => ({
    score: example.n / 8, feedback: "so so", component_feedback: { solver: "solve " + example.q },
  }),
});
"""


async def records(command: list[str], folder: Path) -> list[str]:
    """The texts of the default records of six rows for each seed, as the server sends them."""
    batch = [{"id": str(at), "data": {"q": f'question "{at}" \u2028 ', "n": at}} for at in range(6)]
    with running_server(command, cwd=folder) as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(30)) as session:

            async def call(method: str, params: dict[str, Any]) -> tuple[Any, bytes]:
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                async with session.post(server.url, json=message) as response:
                    text = await response.read()
                return json.loads(text)["result"], text

            described, _ = await call("discover", {})
            assert "steps" in described["capabilities"]
            candidate = described["program"]["seed_candidate"]
            evaluated, _ = await call("evaluate", {"candidate": candidate, "batch": batch, "capture_traces": True})
            params = {"candidate": candidate, "eval_batch": {"batch": batch, **evaluated}}
            params["components_to_update"] = COMPONENTS
            texts = []
            for seed in SEEDS:
                made, body = await call("make_reflective_dataset", {**params, "seed": seed})
                assert [len(made["dataset"][name]) for name in COMPONENTS] == [6, 5, 4]
                assert made["dataset"]["solver"][-1]["Feedback"] == f"solve {batch[5]['data']['q']}"
                assert len({json.dumps(own) for own in made["dataset"].values()}) == 3
                text = body.decode()
                start = text.index('"dataset":') + len('"dataset":')
                texts.append(text[start : json.JSONDecoder().raw_decode(text, start)[1]])
            return texts


async def test_both_languages_make_the_same_records_of_each_component(tmp_path: Path) -> None:
    (tmp_path / "three.py").write_text(PYTHON)
    (tmp_path / "three.mjs").write_text(TYPESCRIPT % PACKAGE)
    python = await records([SERVER, "--program", "three.py"], tmp_path)
    typescript = await records(["node", "three.mjs"], tmp_path)
    assert python == typescript
    assert len(set(python)) > 1
