"""The spend cap: at most one call beyond it, held at it, and reported once."""

import asyncio

import aiohttp
import pytest

from sandbox_runtime.gateway import GatewayPolicy
from sandbox_runtime.gateway.spend_cap import SpendCap
from tests.sandbox_runtime.gateway.conftest import ASKED, Opens, Recorded, Sandbox, sandbox
from tests.sandbox_runtime.gateway.stub_provider import StubProvider, completion
from tests.support.waiting import eventually

COST = 0.01  # of a call: what it reads is free, and it writes 1,000 tokens at 10 dollars a million
PRICES = {"m": (0.0, 10.0), "free": (0.0, 0.0)}


def capped(usd: float) -> GatewayPolicy:
    return GatewayPolicy(cap_usd=usd, prices=PRICES)


async def asks(one: Sandbox, http: aiohttp.ClientSession, times: int) -> None:
    """So many calls, one after the other, as far as they are answered."""
    for _ in range(times):
        async with one.chat(http) as response:
            assert response.status == 200
            await response.read()


async def test_twenty_concurrent_sandboxes_stop_within_one_call_of_the_cap(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    provider.answer = completion(0, 1000, seconds=0.002)
    async with opened(capped(0.495)) as gateway:
        sandboxes = [await sandbox(gateway, name=f"sandbox-{number}") for number in range(4)]
        programs = [asyncio.create_task(asks(sandboxes[number % 4], http, 50)) for number in range(20)]
        await eventually(lambda: recorded.caps)
        assert not any(program.done() for program in programs)  # held, not refused
        assert gateway.spend.spent_usd == pytest.approx(0.5)
        for one in sandboxes:
            await one.session.close()
        for program in programs:
            with pytest.raises(aiohttp.ClientError):
                await program
    assert len(provider.seen) == len(recorded.calls) == 50
    assert sum(call.cost_usd or 0.0 for call in recorded.calls) == pytest.approx(0.5)
    assert recorded.refusals == []


async def test_calls_that_come_while_the_gateway_holds_them_are_answered_later(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession
) -> None:
    async with opened(holds_model_calls=True) as gateway:
        one = await sandbox(gateway)
        program = asyncio.create_task(asks(one, http, 1))
        await eventually(lambda: one.session.models)
        assert (provider.seen, program.done()) == ([], False)
        gateway.release_model_calls()
        await asyncio.wait_for(program, 30)
    assert len(provider.seen) == 1


class UpstreamCall:
    """One that asks the cap to go out, and then takes as long as it is left."""

    def __init__(self, spend: SpendCap, max_cost_usd: float) -> None:
        self.out = asyncio.Event()
        self.over = asyncio.Event()
        self.counted_usd = 0.0
        self.task = asyncio.create_task(self._run(spend, max_cost_usd))

    async def _run(self, spend: SpendCap, max_cost_usd: float) -> None:
        async with spend.charge(max_cost_usd) as charge:
            self.out.set()
            await self.over.wait()
            charge.counted_usd = self.counted_usd

    async def end(self, usd: float) -> None:
        self.counted_usd = usd
        self.over.set()
        await asyncio.wait_for(self.task, 30)


async def settled() -> None:
    """Run all other tasks until each waits: nothing here waits for anything but other tasks."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_calls_that_might_reach_the_cap_wait_for_running_calls_in_order_of_arrival() -> None:
    spend = SpendCap(1.0, lambda: None)
    calls = [UpstreamCall(spend, 0.6) for _ in range(4)]
    await settled()
    assert [call.out.is_set() for call in calls] == [True, True, False, False]  # the second was below the cap
    await calls[0].end(0.1)
    await settled()
    assert [call.out.is_set() for call in calls] == [True, True, True, False]
    for call in calls[1:]:
        await call.end(0.1)
    assert spend.spent_usd == pytest.approx(0.4)


async def test_a_held_call_that_is_cancelled_frees_its_reservation() -> None:
    spend = SpendCap(1.0, lambda: None)
    first, second, third = (UpstreamCall(spend, 1.0) for _ in range(3))
    await settled()
    second.task.cancel()
    await first.end(0.0)  # in the same moment
    await settled()
    assert second.task.cancelled() and third.out.is_set()
    third.task.cancel()  # while it is out
    await settled()
    late = UpstreamCall(spend, 1.0)
    await settled()
    assert late.out.is_set()
    await late.end(0.0)


async def test_what_the_run_spends_elsewhere_counts_and_never_falls_and_the_cap_is_reported_once() -> None:
    reported: list[None] = []
    spend = SpendCap(1.0, lambda: reported.append(None))
    spend.spent_usd = 0.6
    for usd in (0.6, 1.0, 0.5, 2.0):
        spend.run_spent(usd)
        call = UpstreamCall(spend, 0.1)
        await settled()
        assert call.out.is_set() is (usd == 0.6), "the calls through this gateway are a part of it"
        call.task.cancel()
    assert len(reported) == 1


async def test_a_model_without_a_price_is_refused_under_a_cap_with_the_setting_for_its_price(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    async with opened(capped(1.0)) as gateway:
        one = await sandbox(gateway)
        async with one.chat(http, {**ASKED, "model": "unheard-of"}) as response:
            assert response.status == 403
            assert "price" in (await response.json())["error"]["message"]
        dearer = {
            "/openai/v1/chat/completions": [{"service_tier": "priority"}, {"modalities": ["text", "audio"]}],
            "/anthropic/v1/messages": [{"speed": "fast"}, {"inference_geo": "us"}],
        }
        for path, fields in dearer.items():
            for more in fields:
                async with one.post(path, http, {**ASKED, **more}) as response:
                    assert response.status == 403
                    assert "what this costs is not known" in (await response.json())["error"]["message"]
    assert provider.seen == [] and len(recorded.refusals) == 5


async def test_a_call_that_might_cost_more_than_the_entire_cap_is_refused(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    async with opened(capped(1.0)) as gateway:
        one = await sandbox(gateway)
        async with one.chat(http, {**ASKED, "n": 101}) as response:
            assert response.status == 403
            assert "entire" in (await response.json())["error"]["message"]
        async with one.chat(http, {**ASKED, "n": 100}) as response:
            assert response.status == 200
    assert len(provider.seen) == len(recorded.refusals) == 1


async def test_without_a_cap_a_call_without_a_known_price_is_reported_as_unpriced(
    opened: Opens, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    for policy, more in ((GatewayPolicy(), {}), (GatewayPolicy(prices=PRICES), {"service_tier": "priority"})):
        async with opened(policy) as gateway:
            one = await sandbox(gateway)
            async with one.chat(http, {**ASKED, **more}) as response:
                await response.read()
    for call in recorded.calls:
        assert call.cost_usd is None and call.tokens is not None
    assert recorded.calls[0].counted_usd == 0.0
