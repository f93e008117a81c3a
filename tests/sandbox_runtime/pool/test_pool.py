"""A pool of sandboxes: how many there are, when one is replaced, and that none is left."""

import asyncio
import itertools
from pathlib import Path

import pytest

from sandbox_runtime import EgressNotEnforced, RuntimeThrottled, SandboxError, SandboxNotReady, ServerEndpoint
from sandbox_runtime import pool as pool_module
from sandbox_runtime.api.sandbox import EnvironmentMissing, RuntimeUnavailable
from tests.sandbox_runtime.pool.fakes import LIMIT_S, FakeSandbox, FakeStarter, listed, pool_of
from tests.support.waiting import eventually


def not_ready(stage: str = "ready") -> SandboxNotReady:
    return SandboxNotReady(f"it failed at {stage}", stage=stage)


async def test_all_are_started_at_once_and_listed_as_they_become_ready(tmp_path: Path) -> None:
    gates = [asyncio.Event() for _ in range(20)]
    yard = FakeStarter(lambda begun: gates[begun - 1].wait())
    async with pool_of(yard, 20, tmp_path) as (pool, watched):
        await eventually(lambda: yard.begun == 20)
        gates[7].set()
        await pool.first_ready()
        assert (pool.ready, listed(tmp_path)) == (1, [yard.made[0].url])
        for gate in gates:
            gate.set()
        await watched.until(lambda: pool.ready == 20)
        assert sorted(listed(tmp_path)) == sorted(sandbox.url for sandbox in yard.made)
        assert [event.ready for event in watched.events if event.kind == "ready"] == list(range(1, 21))
    assert listed(tmp_path) == []
    assert all(sandbox.closed for sandbox in yard.made)


async def test_one_that_dies_is_unlisted_freed_and_replaced(tmp_path: Path) -> None:
    yard = FakeStarter()
    async with pool_of(yard, 3, tmp_path) as (pool, watched):
        await watched.until(lambda: pool.ready == 3)
        dead = yard.made[1]
        dead.die()
        await watched.until(lambda: pool.ready == 3 and len(yard.made) == 4)
        died = next(event for event in watched.events if event.kind == "died")
        assert (died.id, died.ready, died.wanted) == (dead.id, 2, 3)
        assert "status 1" in died.detail
        assert dead.closed == 1
        assert dead.url not in listed(tmp_path)
        await watched.until(lambda: not list(tmp_path.glob(f"{dead.id}.*")))
        assert yard.made[3].url in listed(tmp_path)


@pytest.mark.parametrize(("short_s", "pauses"), [(10.0, [0.0, 0.01, 0.02, 0.04]), (0.0, [0.0] * 4)])
async def test_one_that_dies_as_soon_as_it_is_up_is_replaced_ever_more_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_s: float, pauses: list[float]
) -> None:
    monkeypatch.setattr(pool_module, "SHORT_LIFE_S", short_s)
    yard = FakeStarter()
    async with pool_of(yard, 1, tmp_path) as (_, watched):
        for lives in range(1, 5):
            await watched.until(lambda lives=lives: watched.kinds().count("ready") == lives)
            yard.made[-1].die()
        await watched.until(lambda: watched.kinds().count("died") == 4)
    assert [event.seconds for event in watched.events if event.kind == "died"] == pauses


async def test_starts_that_fail_together_are_one_failure_and_then_one_is_tried_at_a_time(tmp_path: Path) -> None:
    together = asyncio.Barrier(10)

    async def fail(begun: int) -> None:
        if begun <= 10:
            await together.wait()
            raise SandboxNotReady(f"start {begun} failed", stage="ready")
        if begun == 11:
            raise not_ready()

    yard = FakeStarter(fail)
    async with pool_of(yard, 10, tmp_path) as (pool, watched):
        await watched.until(lambda: pool.ready == 10)
        await pool.first_ready()
    assert watched.kinds()[:3] == ["failed", "failed", "ready"]


async def test_where_none_comes_up_it_gives_up_with_the_first_error(tmp_path: Path) -> None:
    together = asyncio.Barrier(5)

    async def fail(begun: int) -> None:
        if begun <= 5:
            await together.wait()
        raise SandboxNotReady("the first" if begun <= 5 else "a later one", stage="setup")

    yard = FakeStarter(fail)
    async with pool_of(yard, 5, tmp_path) as (pool, watched):
        with pytest.raises(SandboxNotReady, match="the first"):
            async with asyncio.timeout(LIMIT_S):
                await pool.first_ready()
        assert watched.kinds()[-1] == "gave_up"
    assert yard.begun == 5 + pool_module.FAILURES - 1


@pytest.mark.parametrize(
    ("error", "starts"),
    [(EgressNotEnforced("a"), 1), (EnvironmentMissing("b"), 1), (RuntimeUnavailable("c"), 1), (not_ready("main"), 2)],
)
async def test_an_error_that_no_further_start_can_fix_is_raised_early(
    tmp_path: Path, error: SandboxError, starts: int
) -> None:
    def fail(_: int) -> None:
        raise error

    yard = FakeStarter(fail)
    async with pool_of(yard, 1, tmp_path) as (pool, _):
        with pytest.raises(SandboxError) as caught:
            await pool.first_ready()
    assert caught.value is error
    assert yard.begun == starts


async def test_failures_while_others_are_up_are_waited_out(tmp_path: Path) -> None:
    failing = True

    def fail(begun: int) -> None:
        if begun > 2 and failing:
            raise not_ready("main")

    yard = FakeStarter(fail)
    async with pool_of(yard, 2, tmp_path) as (pool, watched):
        await watched.until(lambda: pool.ready == 2)
        yard.made[0].die()
        await watched.until(lambda: watched.kinds().count("failed") >= 4)
        failing = False
        await watched.until(lambda: pool.ready == 2)


async def test_a_pool_that_was_up_gives_up_only_after_many_failures(tmp_path: Path) -> None:
    def fail(begun: int) -> None:
        if begun != 2:
            raise not_ready("setup" if begun == 1 else "main")

    yard = FakeStarter(fail)
    async with pool_of(yard, 1, tmp_path, first_pause_s=0.001) as (pool, watched):
        await pool.first_ready()
        yard.made[0].die()
        await watched.until(lambda: "gave_up" in watched.kinds())
    assert yard.begun == 2 + pool_module.FAILURES_LATER
    assert watched.events[-1].detail == "it failed at main", "the failure before it was up is over"


async def test_a_pool_that_shrinks_ends_those_first_that_are_not_up(tmp_path: Path) -> None:
    never = asyncio.Event()
    yard = FakeStarter(lambda begun: never.wait() if begun <= 2 else None)
    async with pool_of(yard, 4, tmp_path, idle_s=0.05, retire_s=0.05) as (pool, watched):
        await watched.until(lambda: pool.ready == 2)
        pool.demand(2)
        await eventually(lambda: yard.cancelled == 2)
        assert (len(listed(tmp_path)), len(yard.up)) == (2, 2)
        pool.demand(0)
        await eventually(lambda: len(yard.up) < 2)  # its calls may take no longer
        assert (pool.wanted, len(listed(tmp_path)), len(yard.up)) == (1, 1, 1)


async def test_no_start_is_tried_until_the_delay_of_a_throttled_runtime_is_over(tmp_path: Path) -> None:
    loop, times = asyncio.get_running_loop(), []

    async def throttle(begun: int) -> None:
        times.append(loop.time())
        await asyncio.sleep(0)  # the first two are tried at the same time
        if begun == 2:
            raise not_ready()  # after which the pause would be shorter
        if begun <= 5:
            raise RuntimeThrottled("slowly", retry_after_s=0.05)

    yard = FakeStarter(throttle)
    async with pool_of(yard, 2, tmp_path) as (pool, _):
        await pool.first_ready()
    assert all(later - earlier >= 0.05 for earlier, later in itertools.pairwise(times[1:6]))


async def test_it_shrinks_when_there_is_work_for_fewer_and_grows_when_work_waits(tmp_path: Path) -> None:
    yard = FakeStarter()
    async with pool_of(yard, 6, tmp_path, idle_s=0.05) as (pool, watched):
        await watched.until(lambda: pool.ready == 6)
        pool.demand(2)
        await watched.until(lambda: "shrinks" in watched.kinds())
        await eventually(lambda: len(listed(tmp_path)) == 2)
        assert len(yard.up) == 6  # those that are to go come to the end of their calls
        kept = set(listed(tmp_path))
        pool.demand(5)  # there is room for further ones once those are gone
        assert yard.begun == 6
        for sandbox in yard.made:
            pool.left(f"{sandbox.url}/rpc")
        await watched.until(lambda: pool.ready == 5)
        await eventually(lambda: len(yard.up) == 5)
        assert kept < set(listed(tmp_path))


async def test_a_refusal_has_the_token_files_written_anew_in_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "RENEW_PAUSE_S", 0.05)
    yard = FakeStarter()
    async with pool_of(yard, 1, tmp_path) as (pool, _):
        await pool.first_ready()
        line = (tmp_path / "fleet").read_text()
        url, token_file, proxy_file = line.split()
        token = tmp_path / token_file.removeprefix("token-file=")
        proxy = tmp_path / proxy_file.removeprefix("proxy-token-file=")
        assert (token.read_text(), proxy.read_text()) == (f"token 1 of {yard.made[0].id}\n", "proxy 1\n")
        pool.refused(f"{url}/rpc")
        pool.refused(f"{url}/rpc")  # one question is enough for both
        await eventually(lambda: proxy.read_text() == "proxy 2\n")
        assert token.read_text() == f"token 2 of {yard.made[0].id}\n"
        assert (tmp_path / "fleet").read_text() == line
        assert yard.made[0].tokens == 2
        yard.made[0].path = "moved"
        pool.refused(url)  # soon after: it takes effect all the same, a little later
        await eventually(lambda: proxy.read_text() == "proxy 3\n")
        pool.refused(yard.made[0].url)
        await eventually(lambda: proxy.read_text() == "proxy 4\n")


async def test_a_sandbox_whose_endpoint_is_not_known_is_ended_and_replaced(tmp_path: Path) -> None:
    class Mute(FakeSandbox):
        async def endpoint(self) -> ServerEndpoint:
            if self.id.startswith("s0"):
                raise not_ready()
            return await super().endpoint()

    yard = FakeStarter(kind=Mute)
    async with pool_of(yard, 1, tmp_path) as (pool, _):
        await pool.first_ready()
        assert yard.up == yard.made[1:]


async def test_closing_while_all_are_being_started_cancels_every_start(tmp_path: Path) -> None:
    yard = FakeStarter(lambda _: asyncio.Event().wait())
    async with pool_of(yard, 8, tmp_path):
        await eventually(lambda: yard.begun == 8)
    assert yard.cancelled == 8
    assert yard.made == []


async def test_a_sandbox_that_cannot_be_freed_is_reported_and_replaced(tmp_path: Path) -> None:
    class Sticky(FakeSandbox):
        async def close(self) -> None:
            await super().close()
            raise SandboxError("a process stays")

    yard = FakeStarter(kind=Sticky)
    async with pool_of(yard, 2, tmp_path) as (pool, watched):
        await watched.until(lambda: pool.ready == 2)
        yard.made[0].die()
        await watched.until(lambda: pool.ready == 2 and len(yard.made) == 3)
        (event,) = [one for one in watched.events if one.kind == "not_freed"]
        assert (event.id, event.detail) == (yard.made[0].id, "a process stays")
        assert yard.made[2].url in listed(tmp_path)
    assert watched.kinds().count("not_freed") == 3
    assert "gave_up" not in watched.kinds()


async def test_closing_waits_no_longer_than_it_may_for_one_that_does_not_end(tmp_path: Path) -> None:
    never = asyncio.Event()

    class Stuck(FakeSandbox):
        async def close(self) -> None:
            await super().close()
            await never.wait()

    async with pool_of(FakeStarter(kind=Stuck), 1, tmp_path, close_s=0.02) as (pool, watched):
        await pool.first_ready()
    assert watched.kinds()[-1] == "not_freed"
    assert "did not end" in watched.events[-1].detail
    never.set()
