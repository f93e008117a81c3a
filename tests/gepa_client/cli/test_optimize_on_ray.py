"""The sandboxes of a run on the nodes of a real Ray cluster: the result of one machine, also if a node is lost."""

import importlib.util
import json
import threading
from pathlib import Path

import pytest

from tests.gepa_client.cli.sandboxed_program import PROGRAM, Place, place
from tests.gepa_service.engines.ray_cluster import ray_cluster
from tests.support.forked_client import ForkServer
from tests.support.processes import command_of, processes_with
from tests.support.waiting import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

SANDBOXES, CPUS = 64, 22
"""As many as three nodes have room for, by what they state of themselves."""


def hosts() -> dict[int, str]:
    return processes_with("sandbox_runtime.nodes.host", "cmdline")


def servers(here: Place) -> list[int]:
    """The servers of sandboxes that were started from here."""
    commands = {pid: command_of(pid) for pid in here.processes()}
    return [pid for pid, command in commands.items() if b"\0rpc_server\0" in command and b"reaper" not in command]


def has_second_candidate(lines: list[str]) -> bool:
    return any((each["event"], each.get("index")) == ("candidate", 1) for each in map(json.loads, lines))


def test_a_run_over_three_nodes_of_which_one_is_lost_has_the_candidates_of_one_machine(
    tmp_path: Path, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    waits = f"while not __import__('os').path.exists({str(go)!r}):\n        time.sleep(0.05)"
    gated = PROGRAM.replace("time.sleep(0.005)", waits)
    with place(tmp_path, fork_server, {"gated": {"words.py": gated}}) as here:
        go.touch()
        for name, value in here.env.items():
            if name.startswith("XDG_"):  # of the hosts too
                monkeypatch.setenv(name, value)
        alone = here.run(*here.optimize("alone", "gated"))
        assert alone.status == 0, alone.stderr
        with ray_cluster(cpus=CPUS) as cluster:
            for name, value in cluster.variables.items():
                monkeypatch.setenv(name, value)
            for node in ("second", "third"):
                cluster.node(node, cpus=CPUS)
            go.unlink()
            where = ("--sandboxes", SANDBOXES, "--sandbox-memory-mb", 200, "--engine", cluster.address)
            with here.start(*here.optimize("spread", "gated"), *where) as spread:
                out, stderr = list[str](), list[str]()
                given = ((out, spread.stdout), (stderr, spread.stderr))
                readers = [threading.Thread(target=lines.extend, args=(pipe,)) for lines, pipe in given]
                for reader in readers:
                    reader.start()
                try:
                    until(lambda: len(servers(here)) == SANDBOXES, 200)
                    assert {cluster.node_of(pid) for pid in hosts()} == {"head", "second", "third"}
                    go.touch()
                    until(lambda: has_second_candidate(out), 60)
                    cluster.lose("second")
                    spread.wait(200)
                finally:
                    spread.kill()
                    for reader in readers:
                        reader.join(10)
            assert spread.returncode == 0, "".join(stderr)
            assert here.result("spread") == here.result("alone")
            until(lambda: not hosts())
            assert not here.processes()
