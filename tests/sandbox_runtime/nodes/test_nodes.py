"""Sandboxes on several nodes: spread over them, made again elsewhere if a node is lost, and ended with the run."""

import asyncio
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from evolverpc_common.output_tail import OutputTail
from sandbox_runtime import Command, Open, Recipe, RuntimeThrottled, Sandbox, SandboxGone, SandboxSpec
from sandbox_runtime.api.sandbox import LOG_BYTES, EnvironmentMissing, RuntimeUnavailable, ServerEndpoint
from sandbox_runtime.gateway.gateway_session import CONNECTIONS
from sandbox_runtime.nodes import messages, node, runtime, splicing
from sandbox_runtime.nodes.node import HostAddress, Node
from sandbox_runtime.nodes.runtime import NodesRuntime
from tests.sandbox_runtime.backend import short_folder
from tests.sandbox_runtime.gateway_session import Echoing
from tests.sandbox_runtime.node_hosts import LocalHosts
from tests.sandbox_runtime.stub_server import SOURCE
from tests.support.waiting import eventually

DEAD = HostAddress("dead", "http://127.0.0.1:9", 20, "token")
"""A host that accepts no connection."""


@pytest.fixture
async def hosts(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalHosts]:
    with short_folder() as base:
        monkeypatch.setenv("XDG_STATE_HOME", str(base))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
        async with LocalHosts(2) as made:
            yield made
        monkeypatch.undo()
        monkeypatch.setenv("XDG_STATE_HOME", str(base))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
        async with LocalHosts(1) as next_run, NodesRuntime("process", next_run):
            kinds = Counter(path.parent.name for path in base.glob("evolverpc/sandboxes/*/[!.]*"))
            assert kinds == {"hosts": 1, "runs": 1}, "it ends, and removes, what a killed host has left, with a record"


async def spec(on: NodesRuntime, source: str = SOURCE.decode(), gateway: Echoing | None = None) -> SandboxSpec:
    prepared = await on.prepare(Recipe(), on_progress=lambda _: None)
    main = Command((prepared.server[0], "-I", "-S", "-c", source))
    return SandboxSpec(main=main, prepared=prepared, egress=Open(), ready_s=30.0, gateway_session=gateway)


async def started(on: NodesRuntime, source: str = SOURCE.decode(), gateway: Echoing | None = None) -> Sandbox:
    """Make a sandbox as a run does."""
    return await on.start(await spec(on, source, gateway))


def node_of(sandbox: Sandbox) -> str:
    return sandbox.id.rpartition(".")[0]


async def test_sandboxes_are_spread_and_those_of_a_lost_node_are_lost_and_made_on_the_others(hosts: LocalHosts) -> None:
    async with NodesRuntime("process", hosts) as on:
        await eventually(lambda: len(on.nodes) == 2)
        made = await asyncio.gather(*(started(on) for _ in range(4)))
        assert Counter(map(node_of, made)) == {"node-0": 2, "node-1": 2}
        assert {each.id for each in made} <= {each.id for each in await on.found()}
        unstarted = await spec(on)
        lost = (unstarted.prepared.image or "").partition(" ")[0]
        hosts.processes[lost].kill()
        for sandbox in made:
            if node_of(sandbox) == lost:
                ended = await asyncio.wait_for(sandbox.wait(), 20)
                assert (ended.kind, f"node {lost} is lost" in ended.detail) == ("lost", True)
                with pytest.raises(SandboxGone):
                    await sandbox.endpoint()
        with pytest.raises(RuntimeThrottled, match=f"node {lost} is lost"):  # which a pool repeats without counting
            await on.start(unstarted)
        assert lost not in {node_of(await started(on)) for _ in range(2)}


async def test_a_start_waits_for_room_and_is_to_be_repeated_if_its_node_is_lost(
    hosts: LocalHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.room = 1
    async with NodesRuntime("process", hosts) as on:
        monkeypatch.setattr(runtime, "NODE_S", 0.5)
        late = await spec(on)
        first, second = await asyncio.gather(started(on), started(on))  # as soon as its room is not held any more
        with pytest.raises(RuntimeThrottled, match="has no room"):
            await on.start(late)
        third = asyncio.create_task(started(on, "import time; time.sleep(100)"))
        assert not (await asyncio.wait([third], timeout=0.5))[0]
        await first.close()
        async with asyncio.timeout(20):
            while len(await on.found()) < 2:
                pass
        hosts.processes[node_of(first)].kill()
        with pytest.raises(RuntimeThrottled, match="is lost"):
            await asyncio.wait_for(third, 20)
        hosts.processes[node_of(second)].kill()
        await asyncio.wait_for(second.wait(), 20)
        with pytest.raises(RuntimeUnavailable, match=rf"{node_of(second)} is lost.*this machine"):
            await asyncio.wait_for(started(on), 20)


async def test_nodes_that_cannot_be_used_are_passed_over_and_named_if_there_is_no_other(
    hosts: LocalHosts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosts.before = [DEAD]
    async with asyncio.timeout(20), NodesRuntime("process", hosts) as on:
        assert "dead" not in on.nodes
    monkeypatch.setattr(runtime, "OTHERS_S", 4.0)
    hosts.count = 0
    with pytest.raises(RuntimeUnavailable, match=r"node dead at http://127\.0\.0\.1:9 cannot be reached"):
        await asyncio.wait_for(NodesRuntime("process", hosts).__aenter__(), 20)
    hosts.before, hosts.count = [], 1
    monkeypatch.setattr(node, "installed_version", lambda: "0.0")
    with pytest.raises(RuntimeUnavailable, match="node node-0 cannot start sandboxes: it has evolverpc"):
        await asyncio.wait_for(NodesRuntime("process", hosts).__aenter__(), 20)
    (tmp_path / ("t" * 90)).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("t" * 90)))
    with pytest.raises(OSError, match="too long for a socket: set XDG_RUNTIME_DIR"):
        await NodesRuntime("process", hosts, build_gateway_session=Echoing()).__aenter__()


async def test_cancelled_calls_and_starts_end_at_once_and_leave_nothing(
    hosts: LocalHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.room = 1
    async with NodesRuntime("process", hosts) as on:
        await eventually(lambda: len(on.nodes) == 2)
        for _ in range(10):  # the call and its cancellation arrive together
            preparing = asyncio.create_task(spec(on))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            preparing.cancel()
            assert (await asyncio.wait([preparing], timeout=5))[0]
        real, starting = Node._take, asyncio.create_task(started(on))

        def take(self: Node, message: messages.FromHost) -> None:
            if isinstance(message, messages.Answer) and message.result.isdigit():
                starting.cancel()  # while the answer to `Begin` is on its way
            asyncio.get_running_loop().call_later(0.05, real, self, message)

        monkeypatch.setattr(Node, "_take", take)
        assert (await asyncio.wait([starting], timeout=20))[0]
        assert starting.cancelled()
        assert await on.found() == []


async def test_a_program_that_does_not_read_is_ended_and_one_with_many_connections_hinders_no_other(
    hosts: LocalHosts,
) -> None:
    deaf = SOURCE.decode().replace(
        "    body = ", '    if words[1] == "/rpc":\n        import time; time.sleep(100)\n    body = '
    )
    holds = "import os, socket, sys, time, urllib.parse as u\nat = u.urlsplit(os.environ['MODELS'])\n"
    holds += "held = [socket.create_connection((at.hostname, at.port)) for _ in range(int(sys.argv[1]))]\n"
    async with NodesRuntime("process", hosts) as on, aiohttp.ClientSession() as http:
        await eventually(lambda: len(on.nodes) == 2)
        silent, echoing = Echoing(answers=False), Echoing()
        greedy, other = await started(on, gateway=silent), await started(on, gateway=echoing)
        assert node_of(greedy) != node_of(other)
        hold = Command((sys.executable, "-c", f"{holds}time.sleep(100)", "150"))
        holding = asyncio.create_task(greedy.exec(hold))
        await eventually(lambda: silent.accepted >= CONNECTIONS)
        ask = Command((sys.executable, "-c", f"{holds}print(held[0].recv(9))", "1"))
        assert (await asyncio.wait_for(other.exec(ask), 8)).stdout == b"b'models'\n"
        assert silent.accepted == CONNECTIONS
        unread = await started(on, deaf)
        post = http.post(f"{(await unread.endpoint()).url}/rpc", data=BytesIO(b"x" * 5_000_000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(post, 1)
        for each in (unread, greedy):
            await asyncio.wait_for(each.close(), 4)
        with pytest.raises(SandboxGone):
            await holding
        for session in (silent, echoing):
            await session.close()


async def test_a_connection_of_which_one_side_has_ended_ends_soon_and_gets_what_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(splicing, "HALF_OPEN_S", 0.2)
    (one, left), (other, right) = socket.socketpair(), socket.socketpair()
    joined = [await asyncio.open_connection(sock=each) for each in (left, right)]
    with one, other:
        one.sendall(b"last words")
        one.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(splicing.splice(*joined), 5)  # the other side sends nothing, and does not end
        assert await asyncio.to_thread(other.recv, 99) == b"last words"


async def test_a_flood_of_output_is_sent_in_few_pieces_of_which_the_end_is_kept(
    hosts: LocalHosts, tmp_path: Path
) -> None:
    class Counting(OutputTail):
        count = 0

        def add(self, data: bytes) -> None:
            super().add(data)
            self.count += len(data)

    over = tmp_path / "over"
    flood = f"import os, time\nwhile not os.path.exists({str(over)!r}): print('y' * 60000, time.sleep(0.01))\n"
    flood += "print(os.environ['GEPA_ALLOWED_HOSTS'])"
    async with NodesRuntime("process", hosts) as on:
        log, wanted = Counting(LOG_BYTES), await spec(on, flood)
        made = await on.begin(wanted, log)
        serving = asyncio.create_task(made.serve(wanted.main, ServerEndpoint("", "token")))
        await eventually(lambda: log.count > LOG_BYTES)
        over.touch()
        await asyncio.wait_for(serving, 20)
        assert log.bytes().endswith(b"\n127.0.0.1\n")
        assert log.count <= 4 * LOG_BYTES
    left = os.listdir(f"{os.environ['XDG_STATE_HOME']}/evolverpc/sandboxes/process")  # noqa: PTH208  a moment
    assert left == [], "hosts end their sandboxes before the cluster ends them"


async def test_a_machine_that_does_not_answer_is_lost_and_environments_are_prepared_on_others(
    hosts: LocalHosts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(messages, "HEARTBEAT_S", 0.5)
    file = tmp_path / "input"
    file.write_bytes(b"x" * 50_000_000)
    async with NodesRuntime("process", hosts) as on:
        await eventually(lambda: len(on.nodes) == 2)
        unstarted = await spec(on)
        stopped = (unstarted.prepared.image or "").partition(" ")[0]
        hosts.processes[stopped].send_signal(signal.SIGSTOP)
        try:
            preparing = asyncio.gather(spec(on), spec(on))  # one of the two on each node
            with pytest.raises(RuntimeThrottled, match="is lost"):
                with_file = replace(unstarted, main=Command(("cat",), stdin=file))
                await asyncio.wait_for(on.start(with_file), 10)
            for each in await asyncio.wait_for(preparing, 10):
                assert not (each.prepared.image or "").startswith(stopped)
            assert "does not answer" in caplog.text
        finally:
            hosts.processes[stopped].kill()


async def test_a_file_goes_to_a_node_once_and_its_content_is_a_commands_input(
    hosts: LocalHosts, tmp_path: Path
) -> None:
    file = tmp_path / "input"
    async with NodesRuntime("process", hosts) as on:
        sandbox = await started(on)
        for size in (b"300000", b"200000", b"300000"):
            file.write_bytes(b"x" * int(size))
            for _ in range(2):
                done = await sandbox.exec(Command(("wc", "-c"), stdin=file))
                assert done.stdout.strip() == size
        hosts.processes[node_of(sandbox)].kill()  # the next host removes the file


def test_an_error_of_a_node_is_the_same_one_here() -> None:
    for error in (EnvironmentMissing("a"), RuntimeThrottled("b", retry_after_s=3.0), ValueError("c")):
        again = messages.error_of(messages.failure_of(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


async def test_a_host_serves_one_run_that_has_its_token_and_ends_with_it(hosts: LocalHosts) -> None:
    address = await hosts.start("alone")
    place = urlsplit(address.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(b"GET /control HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\n\r\n")
    assert b" 401 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{address.url}/control", headers={"Authorization": "Bearer wrong"}) as refused:
            assert refused.status == 401
        own = {"Authorization": f"Bearer {address.token}"}
        run = await http.ws_connect(f"{address.url}/control", headers=own)
        async with http.get(f"{address.url}/control", headers=own) as second:
            assert second.status == 409
        await run.send_bytes(messages.FROM_RUN.dump_json(messages.Call(7, "Unknown", "{}")))
        answer = messages.FROM_HOST.validate_json(await run.receive_bytes(timeout=10))
        assert isinstance(answer, messages.Answer)
        assert (answer.number, answer.failure is None) == (7, False)
        await run.close()
    assert await asyncio.wait_for(hosts.processes["alone"].wait(), 20) == 0
