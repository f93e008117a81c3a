import asyncio

from gepa_client.fleet import Pin, membership
from gepa_client.transport import rpc
from protocol.errors import Overloaded, ProgramFailed
from tests.gepa_client.fleet.conftest import Ledger, begin, results, until
from tests.gepa_client.scripted_server import failed, ok


async def test_a_traced_minibatch_stays_together_and_minibatches_spread(cluster, opened):
    servers = [cluster.start(2), cluster.start(2)]
    async with opened(*servers) as fleet:
        pins = [Pin(), Pin()]
        tasks = [begin(fleet, f"{at}/{number}", pin=pins[at], trace=True) for at in range(2) for number in range(6)]
        await results(*tasks)
        assert {pin.instance for pin in pins} == {server.instance_id for server in servers}
        for pin, at in zip(pins, range(2), strict=True):
            server = next(server for server in servers if server.instance_id == pin.instance)
            assert set(server.runs) == {f"{at}/{number}" for number in range(6)}


async def test_a_pin_from_before_leads_to_its_instance(cluster, opened):
    servers = [cluster.start(), cluster.start()]
    async with opened(*servers) as fleet:
        await results(*(begin(fleet, f"{number}", pin=Pin(servers[1].instance_id)) for number in range(5)))
        assert sum(servers[1].runs.values()) == 5


async def test_a_pin_moves_when_its_instance_is_gone(cluster, opened):
    servers = [cluster.start(), cluster.start()]
    async with opened(*servers) as fleet:
        pin = Pin()
        await results(*(begin(fleet, f"{number}", pin=pin) for number in range(3)))
        home = next(server for server in servers if server.instance_id == pin.instance)
        other = next(server for server in servers if server is not home)
        cluster.kill(home)
        await results(*(begin(fleet, f"later {number}", pin=pin) for number in range(3)))
        assert pin.instance == other.instance_id
        assert sum(other.runs.values()) == 3


async def test_calls_that_wait_for_an_endpoint_that_dies_move_together(cluster, opened):
    home, other = cluster.start(1, held=True), cluster.start(4)
    async with opened(home, other) as fleet:
        pin = Pin(home.instance_id)
        tasks = [begin(fleet, f"{number}", pin=pin, trace=True) for number in range(5)]
        await until(lambda: home._running == 1 and fleet._membership.slots.waiting == 4)
        cluster.kill(home)
        await results(*tasks)
        assert pin.instance == other.instance_id
        assert sum(other.runs.values()) == 5


async def test_a_pin_waits_for_an_endpoint_that_is_only_busy(cluster, opened):
    home, other = cluster.start(), cluster.start()
    async with opened(home, other) as fleet:
        home.refusals.append(Overloaded(retry_after_s=0.1))
        await results(*(begin(fleet, f"{number}", pin=Pin(home.instance_id)) for number in range(4)))
        assert sum(home.runs.values()) == 4
        assert not other.runs


async def test_a_pin_moves_when_its_endpoint_stays_out_of_reach_and_another_is_up(cluster, opened, monkeypatch):
    monkeypatch.setattr(membership, "PATIENCE_S", 0.1)
    home, other = cluster.start(), cluster.start()
    async with opened(home, other) as fleet:
        home.cuts = rpc.RESENDS + 1
        pin = Pin(home.instance_id)
        first = begin(fleet, "first", pin=pin)
        home.replies["discover"] = lambda _: (_ for _ in ()).throw(Overloaded(retry_after_s=60))
        await until(lambda: fleet.endpoints[0].resting)
        await results(first, *(begin(fleet, f"{number}", pin=pin) for number in range(3)))
        assert pin.instance == other.instance_id


async def test_pinned_calls_find_a_home_when_an_endpoint_comes_back(cluster, opened):
    server = cluster.start(2)
    async with opened(server) as fleet:
        pin = Pin(server.instance_id)
        cluster.kill(server)
        tasks = [begin(fleet, f"{number}", pin=pin, trace=True) for number in range(6)]
        await until(lambda: fleet._membership.slots.waiting == 6)
        cluster.restart(server)
        await results(*tasks)
        assert pin.instance == server.instance_id
        assert set(server.runs) == {f"{number}" for number in range(6)}


async def test_without_references_pinned_calls_go_anywhere(cluster, opened):
    servers = [cluster.start(1, held=True), cluster.start(1, held=True)]
    for server in servers:
        server.capabilities.remove("refs")
    async with opened(*servers) as fleet:
        pin = Pin()
        tasks = [begin(fleet, f"{number}", pin=pin) for number in range(2)]
        await until(lambda: all(server._running == 1 for server in servers))
        for server in servers:
            cluster.let_go(server)
        await results(*tasks)


async def test_a_pinned_call_without_a_verdict_stays_once_and_then_goes_elsewhere(cluster, opened):
    home, other = cluster.start(), cluster.start()
    home.evaluate_one = lambda _c, example, _t: failed("infra_error") if example.id == "bad" else ok()
    async with opened(home, other) as fleet:
        pin = Pin(home.instance_id)
        ledger = Ledger()
        await results(begin(fleet, "bad", ledger, pin=pin), begin(fleet, "good", pin=pin))
        assert ledger.outcomes == ["infra_error", "infra_error", "ok"]
        assert other.runs == {"bad": 1}
        assert pin.instance == home.instance_id


async def test_a_minibatch_whose_program_cannot_start_moves_before_it_holds_anything(cluster, opened):
    servers = [cluster.start(), cluster.start()]
    async with opened(*servers) as fleet:
        pin = Pin()
        servers[0].replies["evaluate"] = lambda _: (_ for _ in ()).throw(ProgramFailed(stage="start"))
        await results(*(begin(fleet, f"{number}", pin=pin) for number in range(4)))
        assert pin.instance == servers[1].instance_id
        assert sum(servers[1].runs.values()) == 4


async def test_cancelling_pinned_calls_that_wait_costs_no_slot(cluster, opened):
    home, other = cluster.start(1, held=True), cluster.start(1)
    async with opened(home, other) as fleet:
        pin = Pin(home.instance_id)
        first = begin(fleet, "first", pin=pin)
        await until(lambda: home._running == 1)
        waiting = [begin(fleet, f"{number}", pin=pin) for number in range(3)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        cluster.let_go(home)
        await results(first, begin(fleet, "last", pin=pin))
        assert set(home.runs) == {"first", "last"}
        assert fleet.in_flight == 0
