"""The servers to copy keep the contract, and a program in four languages gives one result, alone and mixed."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gepa
import pytest

from gepa_client import RemoteAdapter
from gepa_client.conformance import Verdict, run_conformance
from sandbox_runtime import running_server
from scripts.conformance import GEPA_SERVER, NODE_PROGRAM, missing
from tests.support.installed import INSTALLED

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/other-languages.md").read_text(encoding="utf-8")
PERL = re.findall(r"^```perl\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)[0]
ROWS = [json.loads(line) for line in re.findall(r'^{"text".*$', GUIDE, re.MULTILINE)]
RULES = ["charged billing", "parcel shipping", "late other", "again shipping"]
EVOLVERPC = str(Path(GEPA_SERVER).with_name("evolverpc"))
TOKEN = "the-token-of-every-server-here"
PYTHON = """
seed_candidate = {"rules": "refund billing"}

def run(row, candidate):
    label = "other"
    for rule in candidate["rules"].splitlines():
        word, _, given = rule.partition(" ")
        if given and word.lower() in row["text"].lower():
            label = given
    return label

def score(row, output):
    return float(output == row["label"]), "expected " + row["label"]
"""
NODE = """
import { serve } from '%s';
await serve({
  name: 'router',
  seedCandidate: { rules: 'refund billing' },
  run(row, candidate) {
    let label = 'other';
    for (const rule of candidate.rules.split('\\n')) {
      const [word, given] = rule.split(' ');
      if (given && row.text.toLowerCase().includes(word.toLowerCase())) label = given;
    }
    return label;
  },
  score: (row, output) => ({ score: Number(output === row.label), feedback: `expected ${row.label}` }),
});
"""
GO = r"""
package main

import (
	"encoding/json"
	"strings"
)

const name = "router"

var version any
var components = []object{{"name": "rules"}}
var seed = map[string]string{"rules": "refund billing"}

func run(example json.RawMessage, candidate map[string]string) (Result, error) {
	var row struct{ Text, Label string }
	if err := json.Unmarshal(example, &row); err != nil {
		return Result{}, err
	}
	result := Result{Output: "other", Feedback: "expected " + row.Label}
	for _, rule := range strings.Split(candidate["rules"], "\n") {
		word, given, found := strings.Cut(rule, " ")
		if found && strings.Contains(strings.ToLower(row.Text), strings.ToLower(word)) {
			result.Output = given
		}
	}
	if result.Output == row.Label {
		result.Score = 1
	}
	return result, nil
}
"""


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., str]:
    """Builds the server in Go, around another program if one is given; one build at a time."""
    if shutil.which("go") is None:
        pytest.skip("needs Go: apt-get install golang-go")
    INSTALLED.mkdir(exist_ok=True)
    cache = INSTALLED / "go-cache"
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOCACHE": str(cache)}

    def run(program: str | None = None) -> str:
        folder = tmp_path / f"server-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(ROOT / "examples/ports/go", folder)
        if program is not None:
            (folder / "program.go").write_text(program, encoding="utf-8")
        with cache.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(["go", "build", "-o", "server", "."], cwd=folder, env=environment, check=True, timeout=110)
        return str(folder / "server")

    return run


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_server_in_go_passes_every_check_of_the_core(build: Callable[..., str]) -> None:
    with running_server([build()], env={"GEPA_TOKEN": TOKEN, "PORT": "0"}) as server:
        report = await run_conformance(server.url, TOKEN)
    found = {verdict: {o.check.id for o in report.outcomes if o.verdict is verdict} for verdict in Verdict}
    assert (found[Verdict.FAILED], found[Verdict.WARNED]) == (set(), {"jsonrpc.parse.surrogate"})
    assert len(found[Verdict.PASSED]) >= 130


@pytest.mark.long
@pytest.mark.skipif(shutil.which("ruby") is None, reason="needs Ruby: apt-get install ruby")
def test_the_program_in_ruby_passes_every_check_of_a_program_over_stdio() -> None:
    command = [EVOLVERPC, "conformance", "--command", f"ruby {ROOT / 'examples/ports/ruby/program.rb'}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, "68 passed, 0 failed" in ended.stdout) == (0, True), ended.stdout


@contextlib.contextmanager
def serving(commands: dict[str, list[str]], folder: Path) -> Iterator[dict[str, Any]]:
    with contextlib.ExitStack() as stack:
        env = {"GEPA_TOKEN": TOKEN, "PORT": "0"}
        yield {
            language: stack.enter_context(running_server(command, cwd=folder, env=env))
            for language, command in commands.items()
        }


def optimized(servers: dict[str, Any], killed: str | None = None) -> tuple[Any, Any]:
    """Return candidates and scores of a run with the texts of `RULES` in turn; a server is killed at the third."""
    asked: list[str] = []

    def propose(prompt: str) -> str:
        asked.append(prompt)
        if len(asked) == 3 and killed is not None:
            servers[killed].process.kill()
        return "```\n" + "\n".join(["refund billing", *RULES[: len(asked)]]) + "\n```"

    with RemoteAdapter([server.url for server in servers.values()], token=TOKEN) as adapter:
        result = gepa.optimize(
            seed_candidate=adapter.seed_candidate,
            trainset=ROWS,
            adapter=adapter,
            reflection_lm=propose,
            max_metric_calls=100,
            raise_on_exception=True,
        )
    return result.candidates, (result.val_aggregate_scores, asked)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_four_languages_alone_and_mixed_and_with_a_server_killed_find_the_same_candidates(
    build: Callable[..., str], tmp_path: Path
) -> None:
    if (reason := missing("typescript")) is not None:
        pytest.skip(reason)
    for name, text in (
        ("router.pl", PERL),
        ("router.py", PYTHON),
        ("router.mjs", NODE % (Path(NODE_PROGRAM).parents[1] / "index.js")),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
    commands = {
        "python": [GEPA_SERVER, "router.py"],
        "typescript": ["node", "router.mjs"],
        "go": [build(GO)],
        "perl": [GEPA_SERVER, "--command", "perl", "router.pl"],
    }
    with serving(commands, tmp_path) as servers:
        expected = optimized({"python": servers["python"]})
        assert max(expected[1][0]) == 1.0
        assert len(expected[0]) >= 3
        for language in ("typescript", "go", "perl"):
            assert optimized({language: servers[language]}) == expected, language
        assert optimized(servers) == expected
        assert optimized(servers, killed="go") == expected
