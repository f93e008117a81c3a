"""How sandboxes are found and swept, whoever started them."""

import asyncio
import time

from tests.sandbox_runtime.ground import Ground, local, parse_request
from tests.sandbox_runtime.suite.acting import SOON_S, another_process, line_of, up


class Finding:
    async def test_sandboxes_are_found_by_their_labels(self, ground: Ground) -> None:
        async with up(ground, labels={"name": "one"}) as one, up(ground, labels={"name": "two"}) as two:
            found = {each.id: each for each in await ground.runtime.found({"suite": ground.run})}
            assert set(found) == {one.id, two.id}
            assert found[one.id].labels.items() >= {"name": "one", "suite": ground.run}.items()
            assert not found[one.id].orphan
            assert abs(found[one.id].created - time.time()) < 60
            named = await ground.runtime.found({"suite": ground.run, "name": "two"})
            assert [each.id for each in named] == [two.id]
            assert await ground.runtime.found({"suite": "another"}) == []

    async def test_a_sweep_ends_those_with_the_labels_and_orphans_only_unless_told(self, ground: Ground) -> None:
        async with up(ground, labels={"name": "one"}) as one, up(ground, labels={"name": "two"}) as two:
            assert await ground.runtime.sweep({"suite": ground.run}) == []
            wanted = {"suite": ground.run, "name": "one"}
            assert await ground.runtime.sweep(wanted, orphans_only=False) == [one.id]
            assert (await asyncio.wait_for(one.wait(), SOON_S)).kind == "terminated"
            assert (await parse_request(await two.endpoint()))[0] == 200
        assert await ground.left() == []

    @local
    async def test_what_a_killed_process_started_is_swept_and_what_a_live_one_did_is_not(self, ground: Ground) -> None:
        with another_process(ground) as other:
            id_ = await line_of(other)
            labels = {"suite": ground.run}
            (found,) = await ground.runtime.found(labels)
            assert (found.id, found.orphan) == (id_, False)
            assert str(other.pid) in found.owner
            assert await ground.runtime.sweep(labels) == []
            other.kill()
            other.wait(SOON_S)
            assert [each.orphan for each in await ground.runtime.found(labels)] == [True]
            assert await ground.runtime.sweep(labels) == [id_]
            assert await ground.left() == []

    @local
    async def test_who_started_it_is_told_when_somebody_else_sweeps_it(self, ground: Ground) -> None:
        with another_process(ground) as other:
            id_ = await line_of(other)
            assert await ground.runtime.sweep({"suite": ground.run}, orphans_only=False) == [id_]
            assert await line_of(other) == "terminated"
            assert other.wait(SOON_S) == 0
            assert await ground.left() == []
