"""What a call does with an attempt that may have run, and with the endpoint that keeps its minibatch."""

import asyncio

import pytest

from gepa_client.errors import ConnectionLost, Interrupted
from gepa_client.fleet import Pin
from gepa_client.fleet.slots import InFlightLimit, Shutdown
from gepa_client.transport import rpc_client
from gepa_client.transport.calls import Reply
from protocol.errors import CallIdConflict, Overloaded, ProgramFailed
from tests.gepa_client.fleet.conftest import Ledger, ask, begin, results
from tests.gepa_client.scripted_server import failed
from tests.support.waiting import eventually


def in_turn(*answers):
    """The script of a call that is answered so, one sending after the other."""
    left = list(answers)

    async def send(_client, _call_id):
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Reply(answer)

    return send


async def test_an_attempt_stays_open_while_the_process_that_may_have_run_it_is_overloaded(cluster, opened):
    async with opened(cluster.start()) as fleet:
        ledger = Ledger()
        script = in_turn(ConnectionLost("cut"), Overloaded(retry_after_s=0.01), "answer")
        assert await ask(fleet, "x", script, ledger) == "answer"
        assert ([again for _, _, again in ledger.sent_to], ledger.outcomes) == ([False, True, True], ["ok"])


async def test_an_open_attempt_that_an_earlier_process_sent_otherwise_is_made_anew(cluster, opened):
    server = cluster.start()
    async with opened(server) as fleet:
        ledger = Ledger()
        ledger.unfinished = lambda: (server.url.removesuffix("/rpc"), server.instance_id)
        assert await ask(fleet, "x", in_turn(CallIdConflict(call_id="call/0"), "answer"), ledger) == "answer"
        assert ([again for _, _, again in ledger.sent_to], ledger.outcomes) == ([True, False], ["lost", "ok"])


async def test_an_open_attempt_is_not_sent_to_the_process_that_replaces_its_own(cluster, opened):
    server = cluster.start()
    async with opened(server) as fleet:
        described = server.discover

        async def replaced(params):
            if fleet.endpoints[0].resting:
                server.forget("another")
            return await described(params)

        server.replies["discover"] = replaced
        server.cuts = rpc_client.RESENDS + 1
        ledger = Ledger()
        await results(begin(fleet, "a", ledger))
        assert [(instance, again) for _, instance, again in ledger.sent_to][1:] == [("another", False)]
        assert ledger.outcomes == ["lost", "ok"]


async def test_a_minibatch_with_an_answer_stays_where_its_program_fails_and_one_without_moves(cluster, opened):
    async with opened(cluster.start(), cluster.start()) as fleet:
        pin = Pin()
        await ask(fleet, "x", in_turn("answer"), Ledger(), pin=pin)
        with pytest.raises(ProgramFailed):
            await ask(fleet, "y", in_turn(ProgramFailed(stage="evaluate"), "moved"), Ledger(), pin=pin)
        script = in_turn(ProgramFailed(stage="evaluate"), "moved")
        assert await ask(fleet, "z", script, Ledger(), pin=Pin()) == "moved"


async def test_calls_of_a_minibatch_that_wait_for_any_endpoint_go_to_one_and_leave_the_slot_of_the_other(
    cluster, opened
):
    servers = [cluster.start(1, held=True), cluster.start(1, held=True)]
    async with opened(*servers) as fleet:
        pin = Pin()
        tasks = [begin(fleet, f"{number}") for number in range(2)]
        tasks += [begin(fleet, f"{number}", pin=pin, trace=True) for number in range(2, 4)]
        await eventually(lambda: fleet.waiting == 2)
        for server in servers:
            cluster.let_go(server)
        await results(*tasks)
        assert sorted(sum(server.runs.values()) for server in servers) == [1, 3]
        assert fleet.in_flight == 0


async def test_pauses_between_attempts_grow(cluster, opened, monkeypatch):
    pauses = []

    async def pause(_shutdown, seconds):
        pauses.append(seconds)

    monkeypatch.setattr(Shutdown, "pause", pause)
    server = cluster.start()
    server.evaluate_one = lambda *_: failed("infra_error")
    async with opened(server, max_attempts=4, first_backoff_s=0.01) as fleet:
        with pytest.raises(Interrupted, match="no result after 4 attempts"):
            await results(begin(fleet, "a"))
    assert pauses[-1] > 4 * pauses[0] > 0


@pytest.mark.parametrize("held", [1, 2])
async def test_a_wait_for_room_that_is_cancelled_gives_back_what_it_had_and_no_more(held):
    limit, done = InFlightLimit(2), []

    async def work(examples):
        async with limit.hold(examples):
            done.append(examples)

    async with limit.hold(held):
        waiting = asyncio.create_task(work(2))
        await asyncio.sleep(0)
        waiting.cancel()
        other = asyncio.create_task(work(2))
        await asyncio.wait([waiting, other], timeout=0.01)
        assert done == []
    await results(other)
    assert done == [2]
