import asyncio
import threading

import pytest

from gepa_client.errors import Interrupted
from gepa_client.fleet import Address
from gepa_client.fleet.endpoint import FAILURES_TO_COOL_DOWN, Endpoint
from gepa_client.transport import rpc_client
from protocol.errors import Overloaded
from tests.gepa_client.fleet.conftest import Ledger, begin, results, url_of
from tests.gepa_client.scripted_server import failed, ok
from tests.support.waiting import eventually

# --- lost connections ------------------------------------------------------------------------------------------------


async def test_calls_of_a_killed_endpoint_go_elsewhere_and_it_rejoins_automatically(cluster, opened, watch):
    doomed, other = cluster.start(4, held=True), cluster.start(4)
    async with opened(doomed, other) as fleet:
        ledgers = [Ledger(f"{number}") for number in range(12)]
        tasks = [begin(fleet, ledger.name, ledger) for ledger in ledgers]
        await eventually(lambda: doomed._running == 4)
        cluster.kill(doomed)
        assert len(await results(*tasks)) == 12
        repeated = [ledger.outcomes for ledger in ledgers if len(ledger.outcomes) > 1]
        assert repeated == [["lost", "ok"]] * 4, "what was sent once may have run, though nothing listens there then"
        assert sum(other.runs.values()) == 12
        assert [endpoint.resting for endpoint in fleet.endpoints] == [True, False]
        doomed.evaluate_one = lambda *_: ok()
        cluster.restart(doomed)
        await eventually(lambda: watch.of("back"))
        before = sum(doomed.runs.values())
        await results(*(begin(fleet, f"again {number}") for number in range(8)))
        assert sum(doomed.runs.values()) > before
        assert watch.kinds() == ["joined", "joined", "resting", "back"]


async def test_finished_work_is_collected_after_a_connection_was_cut(cluster, opened, watch):
    server, other = cluster.start(), cluster.start()
    server.cuts = rpc_client.RESENDS + 2
    async with opened(server, other) as fleet:
        ledger = Ledger("mine")
        await results(begin(fleet, "a", ledger))
        assert server.runs == {"a": 1}
        assert not other.runs
        assert {params["_meta"]["call_id"] for params in server.called("evaluate")} == {"mine/1"}
        assert [again for _, _, again in ledger.sent_to] == [False, True]
        assert ledger.outcomes == ["ok"]
        assert watch.kinds("resting", "back") == ["resting", "back"]
        server.cuts = 1000
        await results(begin(fleet, "b"))
        assert other.runs == {"b": 1}


async def test_without_call_ids_a_lost_call_is_retried_as_a_new_call_elsewhere(cluster, opened):
    server, other = cluster.start(), cluster.start()
    server.capabilities = []
    server.cuts = 1
    async with opened(server, other) as fleet:
        ledger = Ledger()
        await results(begin(fleet, "a", ledger))
        assert ledger.outcomes == ["lost", "ok"]
        assert other.runs == {"a": 1}


async def test_a_refused_connection_moves_on_at_once(cluster, opened, monkeypatch):
    gone, other = cluster.start(), cluster.start()
    gone.keeps_alive = False
    async with opened(gone, other) as fleet:
        monkeypatch.setattr(rpc_client, "FIRST_PAUSE_S", 60)  # who resends waits longer than this test
        cluster.kill(gone)
        ledgers = [Ledger(f"{number}") for number in range(4)]
        await results(*(begin(fleet, ledger.name, ledger) for ledger in ledgers))
        assert sum(other.runs.values()) == 4
        assert sorted(len(ledger.outcomes) for ledger in ledgers) == [1, 1, 2, 2]
        assert {ledger.outcomes[0] for ledger in ledgers if len(ledger.outcomes) == 2} == {"refused"}


# --- no verdicts and refusals ----------------------------------------------------------------------------------------


async def test_an_infra_error_goes_to_another_endpoint_and_one_of_such_errors_alone_rests(cluster, opened, watch):
    bad, good = cluster.start(), cluster.start()
    bad.evaluate_one = lambda *_: failed("infra_error")
    async with opened(bad, good) as fleet:
        ledgers = [Ledger(f"{number}") for number in range(2)]
        await results(*(begin(fleet, ledger.name, ledger) for ledger in ledgers))
        assert sorted(ledger.outcomes for ledger in ledgers) == [["infra_error", "ok"], ["ok"]]
        await results(*(begin(fleet, f"again {number}") for number in range(4)))
        assert sum(good.runs.values()) == 6
        assert [event.url for event in watch.of("resting")] == [url_of(bad)]


async def test_without_a_verdict_the_run_pauses_and_names_the_example(cluster, opened, watch):
    server = cluster.start()
    server.evaluate_one = lambda _c, example, _t: failed("infra_error") if example.id == "bad" else ok()
    async with opened(server, max_attempts=3, first_backoff_s=0.001) as fleet:
        ledger = Ledger()
        good = begin(fleet, "good")
        with pytest.raises(Interrupted, match=r"example 'bad': no result after 3 attempts; last error: .*infra_error"):
            await asyncio.wait_for(begin(fleet, "bad", ledger), 10)
        assert ledger.outcomes == ["infra_error"] * 3
        assert server.runs["bad"] == 3
        await results(good)
        assert not watch.of("resting"), "the only endpoint"


async def test_an_overloaded_endpoint_is_left_alone_as_long_as_it_asks(cluster, opened, watch):
    server = cluster.start()
    async with opened(server, max_attempts=1) as fleet:
        server.refusals.extend([Overloaded(retry_after_s=0.3)] * 2)
        ledger = Ledger()
        began = asyncio.get_running_loop().time()
        await results(begin(fleet, "a", ledger))
        assert asyncio.get_running_loop().time() - began >= 0.6
        assert ledger.outcomes == ["refused", "refused", "ok"]
        assert watch.kinds("resting", "back", "waiting") == ["resting", "back"] * 2
        assert watch.of("resting")[0].seconds >= 0.3


async def test_a_server_that_refuses_everything_is_an_outage_and_pauses_grow(cluster, opened, monkeypatch):
    resting = Endpoint.at(Address("http://127.0.0.1:9", token="t"))
    first_s, *_, fourth_s = [resting.next_cooldown_s() for _ in range(4)]
    assert fourth_s > 2 * first_s
    assert resting.next_cooldown_s(3600.0) == 60, "no server rests longer at its own request"
    monkeypatch.setattr("gepa_client.fleet.endpoint.LONGEST_S", 0.02)
    server = cluster.start()
    server.refusals.extend([Overloaded(retry_after_s=0.01)] * 1000)
    async with opened(server, max_outage_s=0.2) as fleet:
        with pytest.raises(Interrupted, match=r"no endpoint left for 0\.2") as caught:
            await results(begin(fleet, "a"))
        assert caught.value.status == "paused"


def test_a_call_sent_before_a_cooldown_is_no_evidence_after_it():
    endpoint = Endpoint.at(Address("http://127.0.0.1:9", token="t"))
    endpoint.cooldowns = 1
    outcomes = [endpoint.failed(sent) for sent in (0, *[1] * (FAILURES_TO_COOL_DOWN - 1))]
    endpoint.answered(0)
    assert [*outcomes, endpoint.failed(1)] == [False] * FAILURES_TO_COOL_DOWN + [True]


# --- no endpoint left ------------------------------------------------------------------------------------------------


async def test_without_an_endpoint_calls_wait_and_resume_when_one_returns(cluster, opened, watch):
    servers = [cluster.start(held=True), cluster.start(held=True)]
    async with opened(*servers) as fleet:
        tasks = [begin(fleet, f"{number}") for number in range(6)]
        await eventually(lambda: sum(server._running for server in servers) == 6)
        for server in servers:
            cluster.kill(server)
        await eventually(lambda: watch.of("waiting"))
        assert "connection refused" in watch.of("waiting")[0].detail
        assert watch.of("waiting")[0].seconds == 600
        servers[1].evaluate_one = lambda *_: ok()
        cluster.restart(servers[1])
        await results(*tasks)
        assert watch.kinds("waiting") == ["waiting"]
        cluster.kill(servers[1])
        again = begin(fleet, "in the next outage")
        await eventually(lambda: len(watch.of("waiting")) == 2)
        cluster.restart(servers[1])
        await results(again)


# --- interruption ----------------------------------------------------------------------------------------------------


async def test_an_interruption_ends_every_wait_and_lets_what_is_in_flight_finish(cluster, opened):
    server = cluster.start(2, held=True)
    server_evaluates = server.evaluate_one
    server.evaluate_one = lambda c, example, t: (
        failed("infra_error") if example.id == "backs off" else server_evaluates(c, example, t)
    )
    async with opened(server, first_backoff_s=60) as fleet:
        backing_off = begin(fleet, "backs off")
        await eventually(lambda: server.runs["backs off"] == 1 and fleet.in_flight == 0)
        flying = [begin(fleet, f"{number}") for number in range(2)]
        await eventually(lambda: server._running == 2)
        waiting = [begin(fleet, f"late {number}") for number in range(3)]
        await asyncio.sleep(0)
        thread = threading.Thread(target=fleet.interrupt, args=[Interrupted("cancelled", "cancelled by the user")])
        thread.start()
        ended = await asyncio.wait_for(asyncio.gather(backing_off, *waiting, return_exceptions=True), 10)
        thread.join()
        assert [(type(error), error.status) for error in ended] == [(Interrupted, "cancelled")] * 4
        assert not any(task.done() for task in flying)
        cluster.let_go(server)
        assert [result["status"] for result in await results(*flying)] == ["ok", "ok"]
        with pytest.raises(Interrupted, match="by the user"):
            await begin(fleet, "later")


@pytest.mark.parametrize(("allowed", "version"), [(False, None), (True, None), (False, "1")])
async def test_an_endpoint_that_is_started_again_with_a_changed_program_of_no_version_pauses_the_run(
    cluster, opened, watch, allowed, version
):
    server = cluster.start(2, held=True)
    server.version = version
    described, digest = server.discover, ["one"]

    async def discover(params):
        answer = await described(params)
        return {**answer, "program": {**answer["program"], "digest": digest[0]}}

    server.replies["discover"] = discover
    async with opened(server, allow_mixed_programs=allowed) as fleet:
        task = begin(fleet, "a")
        await eventually(lambda: server._running == 1)
        cluster.kill(server)
        digest[0], server.server["language"] = "two", "python3"
        server.evaluate_one = lambda *_: ok()
        cluster.restart(server)
        if allowed:
            await results(task)
            [warning] = [event for event in watch.of("warning") if event.about_scores]
            assert "is not that of the first server" in warning.detail
        elif version:
            await results(task)
        else:
            with pytest.raises(Interrupted, match="started again with a changed program") as caught:
                await results(task)
            assert caught.value.status == "paused"
            assert not watch.of("back")
