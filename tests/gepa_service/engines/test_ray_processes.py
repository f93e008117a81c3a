"""A service with a Ray cluster is killed: the attempt on its node is not disturbed."""

import importlib.util
import json
import os
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from gepa_service.model.work import TaskResult, Work
from gepa_service.records import open_records
from tests.gepa_service.engines.ray_cluster import ray_cluster
from tests.sandbox_runtime.source.repositories import commit
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


def test_a_service_that_is_killed_and_started_again_disturbs_no_attempt(tmp_path: Path) -> None:
    commit(tmp_path / "repo", {"program.py": SLOW, "gepa.toml": 'program = "program.py"\n'})
    rows = [{"row": {"text": f"t{at}"}} for at in range(TASKS)]
    data = str(tmp_path / "data")
    with ray_cluster() as cluster, ExitStack() as services:

        def up(port: int) -> tuple[subprocess.Popen[str], dict[str, str]]:
            flags = ["--data", data, "--port", str(port), "--sandbox", "process", "--engine", cluster.address, "--json"]
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gepa_service.cli", "up", *flags],
                env={**os.environ, **cluster.variables},
                stdout=subprocess.PIPE,
                text=True,
            )
            services.callback(process.communicate, timeout=60)
            services.callback(process.terminate)
            assert process.stdout is not None
            return process, json.loads(process.stdout.readline())

        service, started = up(0)
        headers = {"Authorization": f"Bearer {started['key']}"}
        body = {"repo_url": str(tmp_path / "repo"), "tasks": rows}
        answer = httpx.post(f"{started['url']}/api/internal/rollouts/batch", json=body, headers=headers, timeout=60)
        assert answer.status_code == 202, answer.text
        with closing(open_records(f"{data}/records.db")) as records:
            for before in (5, 15):
                until(lambda before=before: len(records.page(TaskResult, None)) >= before)
                service.kill()
                service.wait(60)
                service, _ = up(int(started["url"].rpartition(":")[2]))
            until(lambda: records.page(Work, None)[0].status == "completed", 200)
            [work], results = records.page(Work, None), records.page(TaskResult, None)
    assert (work.attempts, work.setbacks, work.done, work.failed) == (1, 0, TASKS, 0)
    assert sorted(each.index for each in results) == list(range(TASKS))
