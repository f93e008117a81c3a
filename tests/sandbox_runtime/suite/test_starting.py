"""The contract of `start`."""

import asyncio
import contextlib

import pytest

from sandbox_runtime import Command, EgressNotEnforced, SandboxNotReady
from tests.sandbox_runtime.backend import BackendUnderTest, parse_request
from tests.sandbox_runtime.suite.acting import output, up
from tests.support.waiting import eventually


class TestStarting:
    async def test_a_sandbox_that_was_started_answers_with_its_token_and_not_without(
        self, backend: BackendUnderTest
    ) -> None:
        async with up(backend) as sandbox:
            endpoint = await sandbox.endpoint()
            assert (await parse_request(endpoint, question=1))[0] == 200
            assert (await parse_request(endpoint, token="another"))[0] == 401
            assert (await sandbox.endpoint()).token == endpoint.token

    async def test_setup_is_run_in_order_and_before_the_server(self, backend: BackendUnderTest) -> None:
        setup = (
            backend.shell("echo one >> order; cat >> order", stdin=b"two\n"),
            backend.shell("mkdir deep; echo three >> order"),
            backend.shell("echo four >> ../order", cwd="deep"),
        )
        async with up(backend, setup=setup) as sandbox:
            assert (await sandbox.exec(Command(("cat", "order")))).stdout == b"one\ntwo\nthree\nfour\n"
            _, result = await parse_request(await sandbox.endpoint())
            assert result["cwd"] == (await sandbox.exec(Command(("pwd",)))).stdout.decode().strip()

    async def test_a_failed_setup_command_is_an_error_with_its_last_output_and_leaves_nothing(
        self, backend: BackendUnderTest
    ) -> None:
        setup = (backend.shell("(sleep 60 &); echo out of paper >&2; exit 3"), backend.shell("echo never"))
        with pytest.raises(SandboxNotReady, match="status 3") as failed:
            await backend.runtime.start(backend.spec(setup=setup))
        assert failed.value.stage == "setup"
        assert "out of paper" in failed.value.log_tail
        assert "never" not in failed.value.log_tail
        assert await backend.left() == []

    async def test_a_server_that_exits_before_it_is_ready_is_an_error_with_its_last_output(
        self, backend: BackendUnderTest
    ) -> None:
        with pytest.raises(SandboxNotReady, match="out of paper") as failed:
            await backend.runtime.start(backend.spec(main=backend.shell("echo out of paper; exit 3")))
        assert failed.value.stage == "main"
        assert await backend.left() == []

    async def test_a_start_that_is_cancelled_leaves_nothing(self, backend: BackendUnderTest) -> None:
        spec = backend.spec(setup=(backend.shell("sleep 60", env={"SLOW": backend.run}),))
        starting = asyncio.create_task(backend.runtime.start(spec))
        await eventually(lambda: backend.processes("SLOW"))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert await backend.left() == []

    async def test_an_egress_that_cannot_be_enforced_is_refused_and_nothing_is_started(
        self, backend: BackendUnderTest
    ) -> None:
        for egress in backend.refused:
            with pytest.raises(EgressNotEnforced):
                await backend.runtime.start(backend.spec(egress=egress))
        assert await backend.left() == []

    async def test_concurrent_sandboxes_are_isolated_from_each_other(self, backend: BackendUnderTest) -> None:
        async with contextlib.AsyncExitStack() as stack:
            three = await asyncio.gather(*(stack.enter_async_context(up(backend)) for _ in range(3)))
            write = "pwd; echo mine > secret-$0; echo mine > $HOME/secret-$0; echo mine > $TMPDIR/secret-$0"
            await asyncio.gather(
                *(output(container, ("sh", "-c", write, str(number))) for number, container in enumerate(three))
            )
            for number, container in enumerate(three):
                seen = await output(container, ("sh", "-c", "ls . $HOME $TMPDIR | grep secret"))
                assert seen.split() == [f"secret-{number}"] * 3
                assert (await parse_request(await container.endpoint()))[0] == 200
            tokens = {(await container.endpoint()).token for container in three}
            assert len(tokens) == len({container.id for container in three}) == 3
