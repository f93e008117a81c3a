"""A Modal on loopback, and a runtime that is open on it."""

import shutil
from collections.abc import AsyncIterator

import pytest

from sandbox_runtime.backends.modal.backend import ModalBackend
from sandbox_runtime.runtime import Runtime
from tests.support.modal_cloud import Cloud, loopback_modal


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    if shutil.which("bwrap") is None:
        pytest.skip("the loopback Modal runs its sandboxes with bubblewrap: apt-get install bubblewrap")
    async with loopback_modal() as cloud:
        yield cloud


@pytest.fixture
async def backend(runtime: Runtime) -> ModalBackend:
    assert isinstance(runtime, ModalBackend)
    return runtime


@pytest.fixture
async def runtime(cloud: Cloud) -> AsyncIterator[Runtime]:
    async with ModalBackend() as runtime:
        yield runtime
    assert cloud.running == [], "nothing outlives its runtime"
