"""Servers are compared as they are: equal ones in two languages pass, and a port with a mistake is named."""

import contextlib
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


def test_two_languages_give_the_same_results_and_a_port_with_another_lower_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (reason := missing("typescript")) is not None:
        pytest.skip(reason)
    program = Path(conformance_program.__file__).read_text(encoding="utf-8") + '\nname = "conformance"\n'
    wrong = program.replace('example.get("output")', 'example["output"].replace("R", "r")')
    (tmp_path / "conformance.py").write_text(wrong, encoding="utf-8")
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    monkeypatch.setenv("GEPA_TOKEN", "the-token-of-every-server-here")
    with contextlib.ExitStack() as stack:
        commands = SERVERS["python"], SERVERS["typescript"], [GEPA_SERVER, "conformance.py"]
        started = [running_server(command, cwd=tmp_path) for command in commands]
        urls = [stack.enter_context(server).url.removesuffix("/rpc") for server in started]
        command = [sys.executable, "-m", "gepa_client", "check", *urls, "--trainset", "rows.json"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    shown = " ".join(ended.stdout.split())
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert f"ok servers: {urls[1]} gives the results of {urls[0]} with the seed, on 15 rows" in shown
    assert 'row 1: output "red" instead of "Red"' in shown
