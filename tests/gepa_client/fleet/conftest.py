"""Scripted servers that can be held up, killed and started again, and fleets of them."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from gepa_client.fleet import Address, Fleet, FleetEvent, Pin, endpoints_file
from gepa_client.transport import rpc_client
from gepa_client.transport.calls import AttemptLog, Call, Reply
from gepa_client.transport.responses import example_results
from gepa_client.transport.rpc_client import RpcClient
from protocol import EvaluateResult, JsonValue
from tests.gepa_client.scripted_server import TOKEN, Host, ScriptedServer, ok

SEED = {"system": "s", "style": "t"}
WAIT_S = 10


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEPA_TOKEN", TOKEN)
    monkeypatch.setattr(rpc_client, "FIRST_PAUSE_S", 0.005)
    monkeypatch.setattr("gepa_client.fleet.endpoint.FIRST_S", 0.02)
    monkeypatch.setattr(endpoints_file, "POLL_S", 0.01)
    monkeypatch.setattr(RpcClient, "send", _send)


def url_of(server: ScriptedServer) -> str:
    return server.url.removesuffix("/rpc")


class Cluster:
    """Servers on one host, each an instance of its own; `held` ones answer no example until they are let go."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.instances = itertools.count(1)
        self.gates: dict[ScriptedServer, asyncio.Event] = {}

    def start(self, slots: int = 8, *, held: bool = False) -> ScriptedServer:
        made = ScriptedServer()
        made.instance_id = f"instance-{next(self.instances)}"
        made.limits["max_concurrency"] = slots
        if held:
            self.hold(made)
        made.url = self.host.serve(made.handle)
        return made

    def hold(self, server: ScriptedServer) -> None:
        gate = self.gates[server] = asyncio.Event()

        async def wait() -> dict[str, Any]:
            await gate.wait()
            return ok()

        server.evaluate_one = lambda *_: wait()

    def let_go(self, server: ScriptedServer) -> None:
        self.host.loop.call_soon_threadsafe(self.gates[server].set)

    def kill(self, server: ScriptedServer) -> None:
        self.host.stop(server.url)

    def restart(self, server: ScriptedServer) -> None:
        """At the same port, as another process."""
        server.forget(f"instance-{next(self.instances)}")
        self.reopen(server)

    def reopen(self, server: ScriptedServer) -> None:
        """At the same port, as the same process: as if the network had been away."""
        port = int(server.url.removesuffix("/rpc").rpartition(":")[2])
        self.host.serve(server.handle, port=port)


@pytest.fixture
def cluster(host: Host) -> Cluster:
    return Cluster(host)


class Watch:
    """Record the events of a fleet."""

    def __init__(self) -> None:
        self.events: list[FleetEvent] = []

    def kinds(self, *wanted: str) -> list[str]:
        return [event.kind for event in self.events if not wanted or event.kind in wanted]

    def of(self, kind: str) -> list[FleetEvent]:
        return [event for event in self.events if event.kind == kind]


@pytest.fixture
def watch() -> Watch:
    return Watch()


Opened = Callable[..., Any]


@pytest.fixture
def opened(watch: Watch) -> Opened:
    """A fleet of these servers or addresses, open; `opened(server, ..., max_attempts=3)`."""

    @asynccontextmanager
    async def open_fleet(*members: ScriptedServer | Address, **options: Any) -> AsyncIterator[Fleet]:
        fleet = Fleet(**({"first_backoff_s": 0.01, "on_event": watch.events.append} | options))
        addresses = [member if isinstance(member, Address) else Address(member.url) for member in members]
        await fleet.open(addresses)
        try:
            yield fleet
        finally:
            await fleet.aclose()

    return open_fleet


class Ledger:
    """The attempts of one call, in memory."""

    def __init__(self, name: str = "call") -> None:
        self.name = name
        self.count = 0
        self.sent_to: list[tuple[str, str | None, bool]] = []
        self.outcomes: list[str] = []

    def unfinished(self) -> None:
        return None

    async def start(self, url: str, instance: str | None, *, repeat: bool) -> str:
        self.count += not repeat
        self.sent_to.append((url, instance, repeat))
        return f"{self.name}/{self.count}"

    def finish(self, outcome: str, **_more: Any) -> None:
        self.outcomes.append(outcome)


Script = Callable[[RpcClient, str | None], Awaitable[Reply[Any]]]


@dataclass(frozen=True)
class ScriptedCall(Call[Any]):
    """A call that a test answers itself, in place of a server or with further requests to it."""

    script: Script | None = None


_send_call = RpcClient.send


async def _send(client: RpcClient, call: Call[Any], call_id: str | None = None) -> Reply[Any]:
    if isinstance(call, ScriptedCall) and call.script is not None:
        return await call.script(client, call_id)
    return await _send_call(client, call, call_id)


async def ask(
    fleet: Fleet, about: str, script: Script, log: AttemptLog, *, pin: Pin | None = None, needs: str | None = None
) -> Any:
    """Have a fleet make a call that `script` answers; returns its value."""
    call = ScriptedCall("scripted", {}, Reply, about, needs=needs, script=script)
    return (await fleet.call(call, log, pin=pin)).value


def evaluation(example: str, *, trace: bool = False, group: str | None = None) -> Call[list[dict[str, Any]]]:
    """Evaluates one example."""

    def parse(answer: JsonValue) -> Reply[list[dict[str, Any]]]:
        [result] = example_results(EvaluateResult, answer, 1)
        return Reply([result], result["status"])

    params = {"candidate": SEED, "batch": [{"id": example, "data": 1}], "capture_traces": trace}
    return Call("evaluate", params, parse, f"example {example!r}", rows=[example], group=group)


def begin(
    fleet: Fleet, example: str, ledger: Ledger | None = None, *, pin: Pin | None = None, trace: bool = False
) -> asyncio.Task[dict[str, Any]]:
    """One example, in a task of its own."""

    async def evaluate() -> dict[str, Any]:
        call = evaluation(example, trace=trace, group="a-group" if trace else None)
        [result] = (await fleet.call(call, ledger or Ledger(example), pin=pin)).value
        return result

    return asyncio.create_task(evaluate())


async def results(*tasks: asyncio.Task[Any]) -> list[Any]:
    """Of all the tasks, in a bounded time."""
    return await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S)
