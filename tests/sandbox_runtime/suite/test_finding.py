"""How sandboxes of this and of other processes are found and swept."""

import asyncio
import time

from sandbox_runtime import Command
from sandbox_runtime.backends.bubblewrap.container import host_name, processes_named
from tests.sandbox_runtime.backend import BackendUnderTest, local, parse_request
from tests.sandbox_runtime.suite.acting import SOON_S, another_process, groups_of, line_of, up
from tests.support.waiting import eventually


class TestFinding:
    async def test_sandboxes_are_found_and_swept_by_their_labels_and_by_default_orphans_only(
        self, backend: BackendUnderTest
    ) -> None:
        async with up(backend, labels={"name": "one"}) as one, up(backend, labels={"name": "two"}) as two:
            found = {each.id: each for each in await backend.runtime.found({"suite": backend.run})}
            assert set(found) == {one.id, two.id}
            assert found[one.id].labels.items() >= {"name": "one", "suite": backend.run}.items()
            assert not found[one.id].orphan
            assert abs(found[one.id].created - time.time()) < 60
            named = await backend.runtime.found({"suite": backend.run, "name": "two"})
            assert [each.id for each in named] == [two.id]
            assert await backend.runtime.found({"suite": "another"}) == []
            assert await backend.runtime.sweep({"suite": backend.run}) == []
            wanted = {"suite": backend.run, "name": "one"}
            assert await backend.runtime.sweep(wanted, orphans_only=False) == [one.id]
            assert (await asyncio.wait_for(one.wait(), SOON_S)).kind == "terminated"
            assert (await parse_request(await two.endpoint()))[0] == 200
        assert await backend.left() == []

    @local
    async def test_the_owner_is_notified_when_another_process_sweeps_its_sandbox(
        self, backend: BackendUnderTest
    ) -> None:
        with another_process(backend) as other:
            id_ = await line_of(other)
            assert await backend.runtime.sweep({"suite": backend.run}, orphans_only=False) == [id_]
            assert await line_of(other) == "terminated"
            assert other.wait(SOON_S) == 0
            assert await backend.left() == []

    @local
    async def test_a_sandbox_ends_with_the_process_that_started_it_and_what_is_left_is_swept(
        self, backend: BackendUnderTest
    ) -> None:
        daemons = Command(("sh", "-c", '(setsid sleep 600 &); exec "$@"', "sh", *backend.spec().main.argv))
        with another_process(backend, main=daemons) as other:
            id_ = await line_of(other)
            assert [each.orphan for each in await backend.runtime.found({"suite": backend.run})] == [False]
            assert await backend.runtime.sweep({"suite": backend.run}) == []
            other.kill()
            await eventually(lambda: not backend.processes())
        await eventually(lambda: not processes_named(host_name(id_)))
        assert [each.orphan for each in await backend.runtime.found({"suite": backend.run})] == [True]
        assert await backend.runtime.sweep({"suite": backend.run}) == [id_]
        assert (await backend.left(), groups_of(id_)) == ([], [])
