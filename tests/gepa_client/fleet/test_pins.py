from gepa_client.fleet import Pin
from gepa_client.fleet import fleet as fleets
from gepa_client.transport import rpc_client
from gepa_client.transport.calls import Reply
from protocol.errors import Overloaded
from tests.gepa_client.fleet.conftest import Ledger, ask, begin, results
from tests.gepa_client.scripted_server import failed
from tests.support.waiting import eventually


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
        servers[1].evaluate_one = lambda *_: failed("infra_error")
        await results(begin(fleet, "fails there", pin=Pin(servers[1].instance_id)))
        assert (servers[1].runs["fails there"], servers[0].runs["fails there"]) == (2, 1)


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


async def test_a_pin_moves_when_its_endpoint_stays_out_of_reach_and_another_is_up(cluster, opened, monkeypatch):
    monkeypatch.setattr(fleets, "PATIENCE_S", 0.1)
    home, other = cluster.start(), cluster.start()
    async with opened(home, other) as fleet:
        home.cuts = rpc_client.RESENDS + 1
        pin = Pin(home.instance_id)
        first = begin(fleet, "first", pin=pin)
        home.replies["discover"] = lambda _: (_ for _ in ()).throw(Overloaded(retry_after_s=60))
        await eventually(lambda: fleet.endpoints[0].resting)
        await results(first, *(begin(fleet, f"{number}", pin=pin) for number in range(3)))
        assert pin.instance == other.instance_id


async def test_a_pinned_call_goes_elsewhere_if_its_endpoint_lacks_what_it_needs(cluster, opened):
    async def answer(client, _call_id):
        return Reply(client.instance_id)

    home, able = cluster.start(), cluster.start()
    home.capabilities.remove("proposals")
    async with opened(home, able) as fleet:
        pin = Pin(home.instance_id)
        assert await ask(fleet, "x", answer, Ledger(), pin=pin, needs="proposals") == able.instance_id
        assert pin.instance == able.instance_id
