"""Servers are compared as they are: equal ones in two languages pass, and a port with a mistake is named."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rpc_server.program import conformance_program
from sandbox_runtime import running_server
from scripts.conformance import GEPA_SERVER, SERVERS, missing

ROWS = [
    {"output": {"b": 1.0, "a": [True, None, "Ä"]}, "score": 0.1, "objective_scores": {"length": 2}},
    {"output": "Red", "score": 1},
    {"echo_candidate": True, "score": 0},
    {"raise": "as asked"},
    *({"output": "x" * at, "score": at / 12} for at in range(12)),
]


def test_two_languages_give_the_same_results_and_a_port_that_adds_a_lower_does_not(tmp_path: Path) -> None:
    if (reason := missing("typescript")) is not None:
        pytest.skip(reason)
    program = Path(conformance_program.__file__).read_text(encoding="utf-8")
    lowering = program.replace(
        'example.get("output")', '(lambda o: o.lower() if o == "Red" else o)(example.get("output"))'
    )
    (tmp_path / "conformance.py").write_text(f'{lowering}\nname = "conformance"\n', encoding="utf-8")
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    with (
        running_server(SERVERS["python"], cwd=tmp_path) as python,
        running_server(SERVERS["typescript"], cwd=tmp_path) as typescript,
        running_server([GEPA_SERVER, "conformance.py"], cwd=tmp_path) as port,
    ):
        lines = []
        for server in (python, typescript, port):
            token = tmp_path / f"token-{len(lines)}"
            token.write_text(server.token)
            lines.append(f"{server.url} token-file={token.name}\n")
        (tmp_path / "fleet").write_text("".join(lines))
        command = [sys.executable, "-m", "gepa_client", "check", "--fleet", "fleet", "--trainset", "rows.json"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    shown = " ".join(ended.stdout.split())
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert f"ok servers: {typescript.url.removesuffix('/rpc')} gives the results of" in shown
    assert 'with the seed: row 1: output "red" instead of "Red"' in shown
