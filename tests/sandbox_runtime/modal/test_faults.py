"""Each fault of Modal ends in a correct result or a clear error, and never leaves a sandbox running."""

import asyncio
import sys

import aiohttp
import pytest
from grpclib import Status
from modal_proto import api_pb2

from sandbox_runtime import Command, RuntimeThrottled, RuntimeUnavailable, SandboxError, SandboxGone
from sandbox_runtime.backends.modal import sandbox as modal_sandbox
from sandbox_runtime.backends.modal.backend import ModalBackend
from sandbox_runtime.runtime import Runtime
from tests.sandbox_runtime.modal.serving_sandbox import WAIT_S, spec
from tests.support.modal_cloud import Cloud
from tests.support.waiting import eventually

Result = api_pb2.GenericResult


async def test_a_creation_that_is_cancelled_midway_leaves_nothing(cloud: Cloud, runtime: Runtime) -> None:
    cloud.faults.create_hangs = True
    starting = asyncio.create_task(runtime.start(spec(cloud)))
    await asyncio.wait_for(cloud.faults.created.wait(), WAIT_S)
    assert len(cloud.running) == 1
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(starting, WAIT_S)
    assert cloud.running == []


async def test_a_creation_whose_answer_is_lost_leaves_nothing(cloud: Cloud, runtime: Runtime) -> None:
    cloud.faults.fail("SandboxCreateV2", Status.UNAVAILABLE, None, done=True)
    with pytest.raises(RuntimeUnavailable):
        await runtime.start(spec(cloud))
    assert len(cloud.boxes) == 1
    assert cloud.running == []


async def test_transient_errors_are_retried(cloud: Cloud, runtime: Runtime) -> None:
    status = Status.UNAVAILABLE
    for method in ("SandboxCreateV2", "SandboxCreateConnectTokenV2", "TaskExecStart", "SandboxTerminateV2"):
        cloud.faults.fail(method, status, 2)
    cloud.faults.fail("SandboxWaitV2", status, 1)
    sandbox = await runtime.start(spec(cloud))
    assert (await sandbox.exec(Command(("echo", "well")))).stdout == b"well\n"
    await sandbox.close()
    assert (await sandbox.wait()).kind == "terminated"
    assert cloud.faults.seen.total() == 9
    assert len(cloud.boxes) == 1


async def test_throttling_is_an_error_with_the_seconds_until_a_retry(cloud: Cloud, runtime: Runtime) -> None:
    cloud.faults.fail("SandboxCreateV2", Status.RESOURCE_EXHAUSTED)
    with pytest.raises(RuntimeThrottled) as caught:
        await runtime.start(spec(cloud))
    assert caught.value.retry_after_s > 0
    cloud.faults.fail("SandboxCreateV2", Status.RESOURCE_EXHAUSTED, retry_after_s=0.2)
    await runtime.start(spec(cloud))  # if Modal sends a delay, its SDK waits
    assert len(cloud.boxes) == 1


async def test_a_refused_token_is_an_error_with_the_command_for_a_new_one(cloud: Cloud, runtime: Runtime) -> None:
    cloud.faults.fail("SandboxCreateV2", Status.UNAUTHENTICATED)
    with pytest.raises(RuntimeUnavailable, match="modal token new"):
        await runtime.start(spec(cloud))
    assert cloud.boxes == []


async def test_missing_credentials_are_an_error_with_the_command_that_creates_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"):
        monkeypatch.setenv(name, "")
    with pytest.raises(RuntimeUnavailable, match="modal token new"):
        await ModalBackend().__aenter__()


async def test_a_sandbox_that_dies_in_a_call_is_gone_at_once(cloud: Cloud, runtime: Runtime) -> None:
    sandbox = await runtime.start(spec(cloud))
    running = asyncio.create_task(sandbox.exec(Command(("sleep", "60"))))
    await eventually(lambda: len(cloud.box(sandbox.id).commands) == 2)
    await cloud.box(sandbox.id).end(Result.GENERIC_STATUS_FAILURE, 137)
    with pytest.raises(SandboxGone):
        await asyncio.wait_for(running, WAIT_S)
    assert (await sandbox.wait()).kind == "lost"
    with pytest.raises(SandboxGone):
        await sandbox.endpoint()
    assert "serving" in await sandbox.logs()
    await sandbox.close()
    late = await runtime.start(spec(cloud))
    await cloud.box(late.id).end(Result.GENERIC_STATUS_TIMEOUT)
    assert (await asyncio.wait_for(late.wait(), WAIT_S)).kind == "timed_out"


async def test_a_command_whose_end_modal_never_reports_times_out_here(
    cloud: Cloud, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modal_sandbox, "GRACE_S", 0.3)
    sandbox = await runtime.start(spec(cloud))
    cloud.faults.exec_never_ends = True
    done = await asyncio.wait_for(sandbox.exec(Command(("echo", "done"), timeout_s=5)), WAIT_S)
    assert done.timed_out
    assert done.stdout == b"done\n"


async def test_an_expired_connect_token_is_replaced_by_asking_again(cloud: Cloud, runtime: Runtime) -> None:
    sandbox = await runtime.start(spec(cloud))
    before = await sandbox.endpoint()
    cloud.expire_connect_tokens()
    after = await sandbox.endpoint()
    statuses = []
    async with aiohttp.ClientSession() as session:
        for endpoint in (before, after):
            headers = {"Authorization": f"Bearer {endpoint.proxy_token}"}
            async with session.get(f"{endpoint.url}/health", headers=headers) as answer:
                statuses.append(answer.status)
    assert statuses == [401, 200]
    assert (before.url, before.token) == (after.url, after.token)


async def test_a_close_that_modal_refuses_raises_and_can_be_repeated(cloud: Cloud, runtime: Runtime) -> None:
    sandbox = await runtime.start(spec(cloud))
    cloud.faults.fail("SandboxTerminateV2", Status.PERMISSION_DENIED)
    with pytest.raises(SandboxError, match=f"{sandbox.id}: it may be left at Modal"):
        await sandbox.close()
    assert cloud.running == [sandbox.id]
    assert (await sandbox.wait()).kind == "lost"
    await sandbox.close()
    assert cloud.running == []


async def test_a_sandbox_whose_process_was_killed_is_swept_and_none_of_another_owner(
    cloud: Cloud, runtime: Runtime
) -> None:
    mine = await runtime.start(spec(cloud, labels={"run": "r"}))
    async with ModalBackend() as another:
        orphan, foreign = [await another.start(spec(cloud, labels={"run": "r"})) for _ in range(2)]
        cloud.box(foreign.id).tags = {"purpose": "unknown"}
        ended = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "")
        await ended.wait()
        tags = cloud.box(orphan.id).tags
        _, _, rest = tags["evolverpc-owner"].partition(".")
        tags["evolverpc-owner"] = f"{ended.pid}.{rest}"
        listed = {of.id: of.orphan for of in await runtime.found()}
        assert listed == {mine.id: False, orphan.id: True}
        cloud.faults.fail("SandboxTagsGetV2", Status.NOT_FOUND)  # one has ended since
        assert {each.id for each in await runtime.found()} <= listed.keys()
        assert await runtime.sweep({"run": "other"}) == []
        assert await runtime.sweep() == [orphan.id]
        assert cloud.running == [mine.id, foreign.id]
        assert await runtime.sweep({"run": "r"}, orphans_only=False) == [mine.id]
        assert (await asyncio.wait_for(mine.wait(), WAIT_S)).kind == "terminated"
        assert cloud.running == [foreign.id]
