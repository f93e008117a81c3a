"""A server forked from the warm process starts with the state that a new interpreter has."""

import inspect
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandbox_runtime import ResourceLimits
from sandbox_runtime.backends.bubblewrap.cgroups import find_control_groups as usable_groups
from sandbox_runtime.backends.bubblewrap.container import BUILDER, BackendContext, Container
from sandbox_runtime.backends.bubblewrap.container_layout import WORKSPACE, VisiblePaths, server_mounts
from sandbox_runtime.backends.bubblewrap.prerequisites import bubblewrap
from sandbox_runtime.backends.bubblewrap.supervisor_client import CommandOrder, SupervisorClient, sealed
from sandbox_runtime.backends.records import SandboxRecords
from tests.sandbox_runtime.bubblewrap import process_state

ENVIRONMENT = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "TZ": "XXX-5", "HOME": WORKSPACE, "NAME": "value"}
COLD = (sys.executable, "-I", "-c", f"{inspect.getsource(process_state)}\nmain()")


@pytest.fixture
async def container(find_control_groups: None, records: SandboxRecords) -> AsyncIterator[Container]:
    rooted = os.geteuid() == 0
    path = bubblewrap(BUILDER if rooted else None)
    context = BackendContext(
        path, SupervisorClient(process_state.__name__), records, usable_groups(), rooted, warm=True
    )
    limits = ResourceLimits(cpu=1.0, memory_mb=512, workspace_mb=16, processes=64, lifetime_s=60.0)
    container = Container(context, {}, VisiblePaths(server_mounts()), limits, context.new_user())
    try:
        await container.start()
        yield container
    finally:
        await container.close()
        await context.supervisor.leave()


async def state_of(container: Container, *, warm: bool) -> dict[str, Any]:
    order = CommandOrder(
        argv=("state",) if warm else COLD,
        cwd=WORKSPACE,
        env=ENVIRONMENT,
        limits=container.limits(server=True),
        alone=False,
        warm=(process_state.__name__, "main") if warm else None,
    )
    stdin = sealed(b"")
    try:
        status, output, errors = await container.run_captured(order, stdin, 1 << 20, 20.0)
    finally:
        os.close(stdin)
    assert status == 0, errors
    state: dict[str, Any] = json.loads(output)
    return state


async def test_a_warm_fork_starts_as_a_new_interpreter_does(container: Container) -> None:
    warm, cold = await state_of(container, warm=True), await state_of(container, warm=False)
    numbers = [state.pop("random") for state in (warm, cold, await state_of(container, warm=True))]
    assert len(set(numbers)) == 3, "forks must not share the state of the random generator"
    assert warm == cold
    assert warm["time_zone"][0] == "XXX"
