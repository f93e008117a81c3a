"""Calls that only some endpoints of a mixed fleet can answer."""

import asyncio

import pytest

from gepa_client.errors import Interrupted
from gepa_client.transport.calls import Reply
from protocol.errors import CallNotFound
from tests.gepa_client.fleet.conftest import SEED, Ledger, ask, begin, results
from tests.support.waiting import eventually

PROPOSALS = {"candidate": SEED, "reflective_dataset": {"system": []}, "components_to_update": ["system"]}


def propose(fleet, *errors):
    left = [*errors]

    async def send(client, call_id):
        if left:
            raise left.pop()
        return Reply((await client.call("propose_new_texts", PROPOSALS, call_id=call_id))["texts"])

    return asyncio.create_task(ask(fleet, "proposal", send, Ledger("proposal"), needs="proposals"))


def without_proposals(server):
    server.capabilities.remove("proposals")
    return server


def fleet_wide(watch):
    """Return the warnings about the whole fleet: no endpoint offers what a call needs."""
    return [event.detail for event in watch.of("warning") if event.url is None]


@pytest.mark.parametrize("offered_again", [True, False])
async def test_it_waits_while_the_only_endpoint_that_offers_it_is_away(cluster, opened, watch, offered_again):
    lacking, able = without_proposals(cluster.start()), cluster.start()
    async with opened(lacking, able) as fleet:
        cluster.kill(able)
        tasks = [propose(fleet), propose(fleet)]
        await eventually(lambda: fleet_wide(watch))
        await results(begin(fleet, "another call runs"))
        cluster.restart(able if offered_again else without_proposals(able))
        if not offered_again:
            for task in tasks:
                with pytest.raises(Interrupted, match="no endpoint of the fleet offers `proposals`"):
                    await results(task)
            return
        assert await results(*tasks) == [{"system": "s!"}] * 2
        warning = "no endpoint that offers `proposals` is left; calls that need it wait up to 600 s"
        assert fleet_wide(watch) == [warning]
        cluster.kill(able)
        later = propose(fleet, CallNotFound(call_id="c"))
        await eventually(lambda: fleet_wide(watch) == [warning] * 2)
        cluster.restart(able)
        await results(later)
