"""Endpoints that are taken from the fleet file while they work."""

import asyncio

from gepa_client.fleet import Address, Pin, endpoint
from tests.gepa_client.fleet.conftest import Ledger, begin, results
from tests.support.waiting import eventually


async def test_calls_of_an_endpoint_that_left_and_is_silent_are_answered_elsewhere(
    cluster, opened, tmp_path, monkeypatch
):
    monkeypatch.setattr(endpoint, "DRAIN_POLL_S", 0.01)
    monkeypatch.setattr(endpoint, "DRAIN_TIMEOUT_S", 0.05)
    silent, other = cluster.start(held=True), cluster.start()
    listed = tmp_path / "fleet"
    listed.write_text(f"{silent.url}\n{other.url}\n", encoding="utf-8")
    async with opened(Address(silent.url, listed=True), Address(other.url, listed=True)) as fleet:
        fleet.follow(listed)
        ledgers = [Ledger(f"run/{number}") for number in range(20)]
        calls = [begin(fleet, ledger.name, ledger) for ledger in ledgers]
        await eventually(lambda: silent._running == 8 and sum(call.done() for call in calls) == 12)
        silent.replies["discover"] = lambda _: asyncio.sleep(60)  # its process died, and its socket still listens
        listed.write_text(f"{other.url}\n", encoding="utf-8")
        await results(*calls)
        lost = [ledger for ledger in ledgers if "lost" in ledger.outcomes]
        assert [(ledger.outcomes, ledger.sent_to[-1][0]) for ledger in lost] == [
            (["lost", "ok"], fleet.endpoints[0].url)
        ] * 8


async def test_an_endpoint_that_left_finishes_what_it_has(cluster, opened, watch, tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint, "DRAIN_POLL_S", 0.01)
    leader, leaver = cluster.start(), cluster.start(held=True)
    (tmp_path / "fleet").write_text(leaver.url, encoding="utf-8")
    async with opened(leader) as fleet:
        cluster.hold(leader)
        fleet.follow(tmp_path / "fleet")
        await eventually(lambda: len(watch.of("joined")) == 2)
        ledgers = [Ledger(f"{number}") for number in range(16)]
        calls = [begin(fleet, f"{number}", ledger) for number, ledger in enumerate(ledgers)]
        await eventually(lambda: leaver._running == 8)
        calls.append(begin(fleet, "pinned", pin=Pin(leaver.instance_id)))  # waits for the one that leaves alone
        asked = len(leaver.called("discover"))
        (tmp_path / "fleet").write_text("", encoding="utf-8")
        await eventually(lambda: len(leaver.called("discover")) > asked + 2 * endpoint.DRAIN_SILENT_POLLS)
        cluster.let_go(leader)
        cluster.let_go(leaver)
        await results(*calls)
        assert all(ledger.outcomes == ["ok"] for ledger in ledgers)
        assert watch.kinds("left") == ["left"]
