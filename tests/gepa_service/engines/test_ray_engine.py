"""Work on a node of a real Ray cluster; a cluster that is away, or would let everyone in, harms none."""

import importlib.util
import time
from dataclasses import replace

import pytest

from evolverpc_common.network_addresses import free_port
from gepa_service.cli.dispatcher_and_engine import engine_of
from gepa_service.engines.engine import EngineRefused, EngineUnavailable
from gepa_service.engines.ray_engine import RayEngine
from gepa_service.jobs.attempt import run_on_node
from gepa_service.jobs.dispatcher_lease import ID as DISPATCHER
from gepa_service.jobs.dispatcher_lease import LeaseRecord
from gepa_service.jobs.shared_processes import SharedProcesses
from gepa_service.model.tenant import TENANTS
from gepa_service.model.work import ProgramWork, TaskResult, Work
from gepa_service.service import Revealed
from tests.gepa_service.engines.ray_cluster import ray_cluster
from tests.gepa_service.faults.processes import listening
from tests.gepa_service.platform import Platform, working
from tests.sandbox_runtime.source.repositories import commit

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")

SECRET = "the-secret-of-acme"
LOOKS = """
import os, pathlib, socket

seed_candidate = {"prompt": "plain"}

def reached(port):
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
        return True
    except OSError:
        return False

def run(row, candidate):
    return {
        "variables": sorted(name for name in os.environ if name.startswith("RAY")),
        "ports": [port for port in row["ports"] if reached(port)],
        "token": pathlib.Path(row["token"]).exists(),
        "key": "OWN_KEY" in os.environ,
    }

def score(row, output):
    return 1.0, "-"
"""


def engine() -> RayEngine:
    return RayEngine(f"ray://127.0.0.1:{free_port()}", run_on_node, lambda work: (work.id,))


def test_a_cluster_that_asks_for_no_token_is_refused_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(EngineRefused, match="export RAY_AUTH_MODE=token"), engine():
        raise AssertionError("it was opened")


def test_secrets_are_given_to_no_other_machine_by_plain_http(service: Platform) -> None:
    place = replace(service.place(), api="http://gepa.example.org:8000")
    with pytest.raises(EngineRefused, match="plain http"):
        engine_of("ray://127.0.0.1:1", service.parts(), place, SharedProcesses(place.folder, keep_warm=False))


def test_a_cluster_that_is_away_is_reported_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
    work, away = Work(tenant="acme", id="job_1", repo_url="/r", created_by="key:x", attempts=1), engine()
    try:
        begun = time.monotonic()
        with pytest.raises(EngineUnavailable, match="does not answer"):
            away.start(work)
        assert time.monotonic() - begun < 20
    finally:
        away.__exit__()


@pytest.mark.timeout(300)
def test_sandboxes_on_a_node_reach_no_port_of_ray_and_see_none_of_its_variables_and_no_secret_is_in_its_arguments(
    service: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.sandbox = "bubblewrap"
    service.secrets["acme"] = Revealed({"OWN_KEY": SECRET})
    commit(service.folder / "looks", {"program.py": LOOKS, "gepa.toml": 'program = "program.py"\n'})
    with ray_cluster(cpus=1) as cluster:
        for name, value in cluster.variables.items():
            monkeypatch.setenv(name, value)
        row = {"ports": [cluster.port, cluster.client_port], "token": cluster.variables["RAY_AUTH_TOKEN_PATH"]}
        for port in row["ports"]:
            listening(port)
        task = ProgramWork(tasks=({"row": row, "task_id": "0"},))
        batch = service.work("rollouts", service.folder / "looks", task, pass_env=["OWN_KEY"])
        with working(service.parts(), service.place(), engine=cluster.address):
            ended = service.ended(batch)
            lease = service.records.get(LeaseRecord, TENANTS, DISPATCHER)
        assert ended.status == "completed", f"{ended!r}\n{service.log(batch)}"
        assert lease is not None and lease.nodes == 1
        [found] = service.records.page(TaskResult, "acme")
        assert found.result["output"] == {"variables": [], "ports": [], "token": False, "key": True}
        kept = [path for path in cluster.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
        assert kept == []
