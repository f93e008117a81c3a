"""The sandboxes of a run on the nodes of a real Ray cluster: the result of one machine, also if a node is lost."""

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from tests.gepa_client.cli.sandboxed_program import place
from tests.gepa_service.engines.ray_cluster import ray_cluster
from tests.support.forked_client import ForkServer
from tests.support.processes import processes_with
from tests.support.waiting import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

SANDBOXES = 64
"""More than one machine of the cluster has room for in time."""


def hosts() -> dict[int, str]:
    return processes_with("sandbox_runtime.nodes.host", "cmdline")


def test_a_run_over_three_nodes_of_which_one_is_lost_has_the_candidates_of_one_machine(
    tmp_path: Path, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place(tmp_path, fork_server) as here:
        for name, value in here.env.items():
            if name.startswith("XDG_"):  # of the hosts too
                monkeypatch.setenv(name, value)
        alone = here.run(*here.optimize("alone"))
        assert alone.status == 0, alone.stderr
        with ray_cluster(cpus=2) as cluster:
            for name, value in cluster.variables.items():
                monkeypatch.setenv(name, value)
            for node in ("second", "third"):
                cluster.node(node, cpus=2)
            spread = here.start(*here.optimize("spread"), "--sandboxes", SANDBOXES, "--engine", cluster.address)
            try:
                assert spread.stdout is not None
                for line in spread.stdout:
                    event = json.loads(line)
                    if event["event"] == "candidate" and event["index"] == 1:
                        assert {cluster.node_of(pid) for pid in hosts()} == {"head", "second", "third"}
                        cluster.lose("second")
                        break
                _, stderr = spread.communicate(timeout=200)
            except subprocess.TimeoutExpired:
                spread.kill()
                raise
            assert spread.returncode == 0, stderr
            assert here.result("spread") == here.result("alone")
            until(lambda: not hosts())
            assert not here.processes()
