"""What `gepa-service up` does of a tenant's work by its real processes: batches, steps, jobs, logs and webhooks."""

import http.server
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gepa_service.cli.test_up import up
from tests.gepa_service.platform import word_repository, word_settings
from tests.sandbox_runtime.source.repositories import commit

WAIT_S = 100.0
pytestmark = [pytest.mark.timeout(400), pytest.mark.long]

PROGRAM = """
seed_candidate = {"prompt": "plain"}


def run(example, candidate):
    return f"{candidate['prompt']} {example['text']}"


def score(example, output):
    return float(output.startswith("better")), "start with better"
"""


@contextmanager
def receiver() -> Iterator[tuple[str, "queue.Queue[dict[str, Any]]"]]:
    """Yield the URL of a server of the tenant, and what it receives."""
    received: queue.Queue[dict[str, Any]] = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.put({"signature": self.headers["X-EvolveRPC-Signature"], **json.loads(body)})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", received
        finally:
            server.shutdown()
            thread.join(WAIT_S)


def until(found: Callable[[], dict[str, Any]], wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + WAIT_S
    while not wanted(answer := found()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)
    return answer


def test_batches_steps_and_jobs_are_done_logged_and_announced(tmp_path: Path) -> None:
    commit(tmp_path / "program", {"program.py": PROGRAM, "gepa.toml": 'program = "program.py"\n'})
    program, words = str(tmp_path / "program"), str(word_repository(tmp_path / "words"))
    with (
        receiver() as (hook, received),
        up(tmp_path / "data", "--allow-network", "127.0.0.0/8") as service,
        httpx.Client(
            base_url=service["url"], headers={"Authorization": f"Bearer {service['key']}"}, timeout=WAIT_S
        ) as client,
    ):
        events = ["job.started", "job.completed", "job.failed", "batch.ended"]
        client.post("/webhooks", json={"url": hook, "events": events}).raise_for_status()

        batch = client.post("/rollouts/batch", json={"repo_url": program, "tasks": [{"text": "a"}, {"text": "b"}]})
        path = f"/rollouts/batch/{batch.json()['batch_id']}"
        ended = until(lambda: client.get(path).json(), lambda found: found["complete"])
        outputs = sorted(each["output"] for each in ended["results"])
        assert (ended["status"], outputs) == ("completed", ["plain a", "plain b"])

        mutation = {"kind": "prompt", "texts": {"prompt": "better"}}
        step = {"repo_url": program, "mutation": mutation, "examples": [{"text": "a"}], "wait_s": WAIT_S}
        done = client.post("/execute_step", json=step).json()
        assert (done["status"], done["examples"][0]["after"]["score"]) == ("completed", 1.0), done

        settings = word_settings(tmp_path / "log")
        given = {name: settings.pop(name) for name in ("trainset", "valset", "testset", "max_metric_calls")}
        del settings["lease_s"]
        job = client.post("/optimize", json={"repo_url": words, **given, "options": settings})
        assert job.status_code == 202, job.text
        path = f"/job/{job.json()['job_id']}"
        known = until(lambda: client.get(path).json(), lambda found: found["status"] not in ("pending", "running"))
        assert known["status"] == "completed", known

        seen = [received.get(timeout=WAIT_S) for _ in range(3)]
        assert {each["event"] for each in seen} == {"batch.ended", "job.started", "job.completed"}
        last = next(each for each in seen if each["event"] == "job.completed")
        assert (last["job_id"], last["program_id"]) == (known["job_id"], known["program_id"])
        assert last["signature"].startswith("t=")
        lines = client.get(f"{path}/logs").json()["lines"]
        assert {"worker", "job"} <= {line["source"] for line in lines}
        assert lines[0]["text"] == "attempt 1 begins"
        assert "completed" in [line["text"].partition(":")[0] for line in lines if line["source"] == "worker"]
