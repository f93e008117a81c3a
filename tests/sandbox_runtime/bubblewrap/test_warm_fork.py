"""A server forked from the warm process starts with the state that a new interpreter has."""

import inspect
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandbox_runtime.backends.bubblewrap.bounds import Bounds
from sandbox_runtime.backends.bubblewrap.box import Box
from sandbox_runtime.backends.bubblewrap.door import Door
from sandbox_runtime.backends.bubblewrap.groups import usable as usable_groups
from sandbox_runtime.backends.bubblewrap.inputs import sealed
from sandbox_runtime.backends.bubblewrap.layout import WORKSPACE, Shape
from sandbox_runtime.backends.bubblewrap.machine import BUILDER, Machine
from sandbox_runtime.backends.bubblewrap.missing import bubblewrap
from sandbox_runtime.backends.bubblewrap.order import RunOrder
from sandbox_runtime.backends.bubblewrap.packages import server_mounts
from sandbox_runtime.backends.records import Records
from tests.sandbox_runtime.bubblewrap import process_state

ENVIRONMENT = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "TZ": "XXX-5", "HOME": WORKSPACE, "NAME": "value"}
COLD = (sys.executable, "-I", "-c", f"{inspect.getsource(process_state)}\nmain()")


@pytest.fixture
async def box(usable: None, records: Records) -> AsyncIterator[Box]:
    rooted = os.geteuid() == 0
    path = bubblewrap(BUILDER if rooted else None)
    machine = Machine(path, Door(process_state.__name__), records, usable_groups(), rooted, warm=True)
    bounds = Bounds(cpu=1.0, memory_mb=512, workspace_mb=16, processes=64, lifetime_s=60.0)
    box = Box(machine, {}, Shape(server_mounts()), bounds, machine.new_user())
    try:
        await box.start()
        yield box
    finally:
        await box.close()
        await machine.door.leave()


async def state_of(box: Box, *, warm: bool) -> dict[str, Any]:
    order = RunOrder(
        argv=("state",) if warm else COLD,
        cwd=WORKSPACE,
        env=ENVIRONMENT,
        limits=box.limits(server=True),
        alone=False,
        warm=(process_state.__name__, "main") if warm else None,
    )
    stdin = sealed(b"")
    try:
        status, output, errors = await box.run_heard(order, stdin, 1 << 20, 20.0)
    finally:
        os.close(stdin)
    assert status == 0, errors
    state: dict[str, Any] = json.loads(output)
    return state


async def test_a_warm_fork_starts_as_a_new_interpreter_does(box: Box) -> None:
    warm, cold = await state_of(box, warm=True), await state_of(box, warm=False)
    numbers = [state.pop("random") for state in (warm, cold, await state_of(box, warm=True))]
    assert len(set(numbers)) == 3, "forks must not share the state of the random generator"
    assert warm == cold
    assert warm["time_zone"][0] == "XXX"
