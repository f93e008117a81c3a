"""The packed npm package in a folder of its own: one file, and no Python set up by hand."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "clients" / "typescript"

PROGRAM = """
import { optimize } from "evolverpc";

const teams = { charge: "billing", parcel: "shipping", crash: "bugs", refund: "billing" };
const rows = Object.entries(teams).flatMap(([thing, team]) =>
  Array.from({ length: 15 }, (_, at) => ({ text: `message ${at} about a ${thing}`, team })),
);
const { bestCandidate, seedScore, bestScore } = await optimize({
  program: {
    name: "router",
    seedCandidate: { rules: "" },
    run: ({ text }, { rules }) => rules.split(", ").find((rule) => text.endsWith(rule.split("=")[0]!))?.split("=")[1],
    score: ({ team }, output) => (output === team ? [1, "right"] : [0, `expected ${team}`]),
  },
  trainset: rows,
  propose: ({ rules }, { rules: records }) => {
    const missed = records!.find((record) => record.Feedback !== "right")!.Inputs as (typeof rows)[0];
    return { rules: `${missed.text.split(" ").at(-1)}=${missed.team}, ${rules}` };
  },
  maxMetricCalls: 400,
});
console.log(seedScore, bestScore, bestCandidate.rules);
"""


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not there")
def test_one_file_of_at_most_25_lines_is_optimized_after_npm_install_alone(tmp_path: Path) -> None:
    assert len(PROGRAM.strip().splitlines()) <= 25

    def npm(*words: str | Path) -> None:
        quiet = ("--no-audit", "--no-fund", "--loglevel=error")
        subprocess.run(["npm", *map(str, words), *quiet], cwd=tmp_path, check=True, timeout=300)

    (tmp_path / "package.json").write_text('{"type": "module", "private": true}')
    (tmp_path / "program.ts").write_text(PROGRAM)
    npm("pack", PACKAGE)
    [packed] = tmp_path.glob("evolverpc-*.tgz")
    npm("install", packed, "node@24")  # which strips types; the one on PATH may not
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    node = tmp_path / "node_modules" / "node" / "bin" / "node"
    environment = {"PATH": f"{python.parent}:{node.parent}", "HOME": str(tmp_path)}
    environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
    for limit_s in (400, 60):  # the second time the optimizer is there
        began = time.monotonic()
        done = subprocess.run(
            [node, "program.ts"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=limit_s
        )
        assert done.returncode == 0, done.stderr
        print(f"{time.monotonic() - began:.1f} s: {done.stdout}")
        scores, _, rules = done.stdout.partition(" 1 ")
        assert scores == "0"
        assert sorted(rules.rstrip(", \n").split(", ")) == [
            *("charge=billing", "crash=bugs", "parcel=shipping", "refund=billing"),
        ]
    assert "setting up" not in done.stderr
