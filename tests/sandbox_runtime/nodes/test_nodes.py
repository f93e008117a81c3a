"""Sandboxes on several nodes: spread over them, made again elsewhere if a node is lost, and ended with the run."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from sandbox_runtime import Command, Open, Recipe, RuntimeThrottled, Sandbox, SandboxGone, SandboxSpec
from sandbox_runtime.nodes.runtime import NodesRuntime
from tests.sandbox_runtime.backend import short_folder
from tests.sandbox_runtime.node_hosts import LocalHosts
from tests.sandbox_runtime.stub_server import SOURCE
from tests.support.waiting import eventually


@pytest.fixture
async def hosts(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalHosts]:
    with short_folder() as base:
        monkeypatch.setenv("XDG_STATE_HOME", str(base))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
        async with LocalHosts(2) as made:
            yield made
        async with LocalHosts(1) as next_run, NodesRuntime("process", next_run):
            left = [path for path in base.glob("evolverpc/sandboxes/*/*") if path.parent.name != "hosts"]
            assert len(left) == 1, "the run's own: it ends what a killed host has left"


async def started(runtime: NodesRuntime) -> Sandbox:
    """Make a sandbox as a run does."""
    prepared = await runtime.prepare(Recipe(), on_progress=lambda _: None)
    main = Command((prepared.server[0], "-I", "-S", "-c", SOURCE.decode()))
    return await runtime.start(SandboxSpec(main=main, prepared=prepared, egress=Open(), ready_s=30.0))


async def test_sandboxes_are_spread_and_those_of_a_lost_node_are_lost_and_made_on_the_others(hosts: LocalHosts) -> None:
    async with NodesRuntime("process", hosts) as runtime:
        await eventually(lambda: len(runtime.nodes) == 2)
        made = [await started(runtime) for _ in range(4)]
        nodes = [each.id.rpartition(".")[0] for each in made]
        assert Counter(nodes) == {"node-0": 2, "node-1": 2}
        prepared = await runtime.prepare(Recipe(), on_progress=lambda _: None)
        lost = (prepared.image or "").partition(" ")[0]
        hosts.processes[lost].kill()
        for sandbox, node in zip(made, nodes, strict=True):
            if node == lost:
                ended = await asyncio.wait_for(sandbox.wait(), 20)
                assert (ended.kind, f"node {lost} is lost" in ended.detail) == ("lost", True)
                with pytest.raises(SandboxGone):
                    await sandbox.endpoint()
        with pytest.raises(RuntimeThrottled, match=f"node {lost} is lost"):
            await runtime.start(SandboxSpec(main=Command(("true",)), prepared=prepared, egress=Open(), ready_s=30.0))
        again = [await started(runtime) for _ in range(2)]
        assert lost not in {each.id.rpartition(".")[0] for each in again}


async def test_a_file_goes_to_a_node_once_and_its_content_is_a_commands_input(
    hosts: LocalHosts, tmp_path: Path
) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"x" * 300_000)
    async with NodesRuntime("process", hosts) as runtime:
        sandbox = await started(runtime)
        for _ in range(2):
            done = await sandbox.exec(Command(("wc", "-c"), stdin=file))
            assert done.stdout.strip() == b"300000"


async def test_a_host_serves_one_run_that_has_its_token_and_ends_with_it(hosts: LocalHosts) -> None:
    address = await hosts.start("alone")
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{address.url}/control", headers={"Authorization": "Bearer wrong"}) as refused:
            assert refused.status == 401
        own = {"Authorization": f"Bearer {address.token}"}
        run = await http.ws_connect(f"{address.url}/control", headers=own)
        async with http.get(f"{address.url}/control", headers=own) as second:
            assert second.status == 409
        await run.close()
    assert await asyncio.wait_for(hosts.processes["alone"].wait(), 20) == 0
