"""The driver of a job in a container: it has no file of the machine but Python, and no network but three ports.

By one it reaches the journal of its job at the API and the servers of its job's sandboxes, by the others models
through a gateway that adds the keys. The container is one of `sandbox_runtime`: own namespaces, own user, limits, a
filter of system calls.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gepa_client.journal.http_store import TOKEN_FILE_VARIABLE
from gepa_client.run.supervisor import DRIVER
from gepa_client.sandboxing.session import SandboxSession
from gepa_service.jobs.driver_place import DriverPlace, fronted_sandboxes, model_access
from gepa_service.jobs.http_front import HttpFront
from gepa_service.jobs.piped_driver import launcher
from gepa_service.jobs.work_order import OptimizeOrder
from sandbox_runtime import Closed, Command, ResourceLimits
from sandbox_runtime.api.egress import MODELS_PORT, TUNNEL_PORT
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.backends.bubblewrap.container_layout import (
    HOME,
    MODELS_URL,
    SYSTEM_PATH,
    TMP,
    VisiblePaths,
    package_mounts,
)

if TYPE_CHECKING:
    import asyncio

PACKAGES = ("gepa_client", "protocol", "evolverpc_common")
MEMORY_MB, PROCESSES, WORKSPACE_MB = 4096, 256, 256
LIFETIME_S = 30 * 24 * 3600.0
FRONT_PORT = 20_000


@contextlib.asynccontextmanager
async def isolated(order: OptimizeOrder, session: SandboxSession) -> AsyncIterator[DriverPlace]:
    """Start the container for the block. Raises `SandboxError`, `OSError`: it cannot be started."""
    async with contextlib.AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(model_access(order, session, None))
        backend = BubblewrapBackend()
        await backend.open()
        shared = order.folder / "shared"
        shared.mkdir(mode=0o755, exist_ok=True)
        visible = VisiblePaths((*package_mounts(*PACKAGES), str(shared)))
        limits = ResourceLimits(float(os.cpu_count() or 1), MEMORY_MB, WORKSPACE_MB, PROCESSES, LIFETIME_S)
        container = backend.container({"purpose": "driver", "job": order.id}, visible, limits)
        stack.push_async_callback(container.close)
        await container.start()
        models, tunnel, listener = await container.listen(MODELS_PORT, TUNNEL_PORT, FRONT_PORT)
        access = gateway.open_session("driver", Closed())
        await access.serve(models, tunnel)
        front = HttpFront(f"http://127.0.0.1:{FRONT_PORT}")
        await stack.enter_async_context(front.listening(listener))
        sandboxes, token = await stack.enter_async_context(fronted_sandboxes(order, session, front, shared))
        variables = {
            **access.env(MODELS_URL, None),
            "PATH": ":".join(SYSTEM_PATH),
            "HOME": HOME,
            "TMPDIR": TMP,
            "LANG": "C.UTF-8",
            TOKEN_FILE_VARIABLE: str(token),
        }

        async def begin(env: Mapping[str, str], streams: Sequence[int]) -> "asyncio.Future[int]":
            return await container.begin(Command(tuple(DRIVER), env=env), streams)

        store = front.route_to_journal(order.api, order.id)
        yield DriverPlace(launcher(begin, container.close, variables), sandboxes, store)
