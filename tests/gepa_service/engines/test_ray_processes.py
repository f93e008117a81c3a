"""The processes of a service with a Ray cluster are killed: the attempt on its node is not disturbed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from gepa_service.model.work import TaskResult, Work
from gepa_service.records.open_records import open_records
from tests.gepa_service.engines.ray_cluster import ray_cluster
from tests.sandbox_runtime.source.repositories import commit
from tests.support.processes import processes_with
from tests.support.waiting import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

SLOW = """
import time

seed_candidate = {"prompt": "plain"}

def run(row, candidate):
    time.sleep(1)
    return row["text"]

def score(row, output):
    return 1.0, "-"
"""
TASKS = 40


def test_a_killed_dispatcher_and_a_killed_api_disturb_no_attempt_and_every_task_has_one_result(tmp_path: Path) -> None:
    commit(tmp_path / "repo", {"program.py": SLOW, "gepa.toml": 'program = "program.py"\n'})
    rows = [{"row": {"text": f"t{at}"}} for at in range(TASKS)]
    with ray_cluster() as cluster:
        flags = ["--data", str(tmp_path / "data"), "--port", "0", "--sandbox", "process", "--engine", cluster.address]
        up = subprocess.Popen(
            [sys.executable, "-P", "-m", "gepa_service.cli", "up", *flags, "--json"],
            env={**os.environ, **cluster.variables},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert up.stdout is not None
            started = json.loads(up.stdout.readline())
            headers = {"Authorization": f"Bearer {started['key']}"}
            body = {"repo_url": str(tmp_path / "repo"), "tasks": rows}
            answer = httpx.post(f"{started['url']}/api/internal/rollouts/batch", json=body, headers=headers, timeout=60)
            assert answer.status_code == 202, answer.text
            with closing(open_records(str(tmp_path / "data" / "records.db"))) as records:
                for part, before in (("dispatcher", 5), ("api", 15)):
                    until(lambda before=before: len(records.page(TaskResult, None)) >= before)
                    [pid] = processes_with(f"gepa_service.cli {part} --database {tmp_path}", "cmdline")
                    os.kill(pid, signal.SIGKILL)
                until(lambda: records.page(Work, None)[0].status == "completed", 200)
                [work], results = records.page(Work, None), records.page(TaskResult, None)
        finally:
            up.terminate()
            up.communicate(timeout=60)
    assert (work.attempts, work.setbacks, work.done, work.failed) == (1, 0, TASKS, 0)
    assert sorted(each.index for each in results) == list(range(TASKS))
