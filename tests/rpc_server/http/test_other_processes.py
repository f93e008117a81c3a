"""A call outlives the process that asked: another one, with the same id and params, collects it; nothing runs twice."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_runtime import ServerEndpoint
from tests.support.forked_client import ForkServer

CALL_ID = "20261120-171700-3fa9-tickets/120/1"
PROGRAM = """
import os, time
seed_candidate = {"prompt": "x"}
def run(example, candidate, trace):
    trace.append("looked")
    with open("ran", "a") as file:
        file.write(example["name"] + "\\n")
    while not os.path.exists(example.get("until", "ran")):
        time.sleep(0.01)
    return os.urandom(8).hex()
def score(example, output):
    with open("scored", "a") as file:
        file.write(example["name"] + "\\n")
    return 1.0
"""
ASK = """
import json, sys, urllib.request
url, token, method, params = sys.argv[1:]
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": json.loads(params)}).encode()
headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
    print(answer.read().decode())
"""


@pytest.fixture
def endpoint(tmp_path: Path, fork_server: ForkServer) -> Iterator[ServerEndpoint]:
    (tmp_path / "mine.py").write_text(PROGRAM)
    with fork_server.running_server("--program", "mine.py", "--workers", "1", cwd=tmp_path) as server:
        yield server


def asking(endpoint: ServerEndpoint, method: str, params: dict[str, Any]) -> "subprocess.Popen[bytes]":
    """A process that asks once and prints the answer."""
    command = [sys.executable, "-c", ASK, endpoint.url, endpoint.token or "", method, json.dumps(params)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def asked(endpoint: ServerEndpoint, method: str, params: dict[str, Any]) -> Any:
    """The result, for a process of its own."""
    with asking(endpoint, method, params) as process:
        printed, _ = process.communicate(timeout=30)
    return json.loads(printed)["result"]


def evaluation(data: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"candidate": {"prompt": "x"}, "batch": [{"id": "7", "data": data}], "_meta": {"call_id": CALL_ID}, **more}


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def test_a_finished_answer_is_collected_by_another_process(endpoint: ServerEndpoint, tmp_path: Path) -> None:
    first = asked(endpoint, "evaluate", evaluation({"name": "a"}))
    assert first["results"][0]["status"] == "ok"
    assert asked(endpoint, "evaluate", evaluation({"name": "a"})) == first
    assert asked(endpoint, "get_result", {"call_id": CALL_ID}) == first
    assert lines(tmp_path / "ran") == ["a"]


def test_a_call_of_a_killed_client_continues_and_is_collected(endpoint: ServerEndpoint, tmp_path: Path) -> None:
    params = evaluation({"name": "a", "until": "go"})
    with asking(endpoint, "evaluate", params) as first:
        end = time.monotonic() + 30
        while not lines(tmp_path / "ran"):
            assert time.monotonic() < end, "it was never run"
            time.sleep(0.01)
        first.kill()
    with asking(endpoint, "evaluate", params) as second:
        (tmp_path / "go").touch()
        printed, _ = second.communicate(timeout=30)
    assert json.loads(printed)["result"]["results"][0]["status"] == "ok"
    assert lines(tmp_path / "ran") == ["a"]
