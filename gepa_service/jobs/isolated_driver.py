"""The driver of a job in a container: it has no file of the machine but Python, and no network but three relays.

Inside are the journal of its job at the API, the servers of its job's sandboxes, and models through a gateway that adds
the keys. The container is one of `sandbox_runtime`: own namespaces, own user, limits, a filter of system calls.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from gepa_client.journal.http_store import TOKEN_FILE_VARIABLE
from gepa_client.run.supervisor import DRIVER, LaunchedDriver
from gepa_client.sandboxing.session import SandboxSession
from gepa_service.jobs.driver_place import DriverPlace, RelayedSandboxes, model_access
from gepa_service.jobs.journal_relay import journal_relay
from gepa_service.jobs.piped_driver import launched
from gepa_service.jobs.relays import Relays
from gepa_service.jobs.work_order import OptimizeOrder
from sandbox_runtime import Closed, ResourceLimits
from sandbox_runtime.api.egress import MODELS_PORT, TUNNEL_PORT
from sandbox_runtime.backends.bubblewrap.container import Container
from sandbox_runtime.backends.bubblewrap.container_layout import (
    HOME,
    MODELS_URL,
    SYSTEM_PATH,
    TMP,
    TUNNEL_URL,
    WORKSPACE,
    VisiblePaths,
    package_mounts,
)
from sandbox_runtime.backends.bubblewrap.runtime import BubblewrapRuntime
from sandbox_runtime.backends.bubblewrap.supervisor_client import CommandOrder

PACKAGES = ("gepa_client", "protocol", "evolverpc_common")
MEMORY_MB, PROCESSES, WORKSPACE_MB = 4096, 256, 256
LIFETIME_S = 30 * 24 * 3600.0
JOURNAL_PORT = 19_999


@contextlib.asynccontextmanager
async def isolated(order: OptimizeOrder, session: SandboxSession) -> AsyncIterator[DriverPlace]:
    """Start the container for the block. Raises `SandboxError`, `OSError`: it cannot be started."""
    async with contextlib.AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(model_access(order, session, None))
        runtime = await stack.enter_async_context(BubblewrapRuntime(warm=False))
        shared = order.folder / "shared"
        shared.mkdir(mode=0o755, exist_ok=True)
        visible = VisiblePaths((*package_mounts(*PACKAGES), str(shared)))
        limits = ResourceLimits(float(os.cpu_count() or 1), MEMORY_MB, WORKSPACE_MB, PROCESSES, LIFETIME_S)
        container = runtime.container({"purpose": "driver", "job": order.id}, visible, limits)
        stack.push_async_callback(container.close)
        await container.start()
        models = gateway.open_session("driver", Closed())
        await models.serve(*await container.listen(MODELS_PORT, TUNNEL_PORT))

        async def listen(port: int) -> socket.socket:
            [listening] = await container.listen(port)
            return listening

        secrets = order.secrets_of_tenant()
        relays = Relays(listen, shared, session.settings.fleet, order.token_file, secrets)
        await stack.enter_async_context(relays)
        [journal] = await container.listen(JOURNAL_PORT)
        await stack.enter_async_context(journal_relay(journal, order.api, order.id))
        keys = models.env(MODELS_URL, TUNNEL_URL).items()
        variables = {
            **{name: value for name, value in keys if not name.lower().endswith("_proxy")},
            "PATH": ":".join(SYSTEM_PATH),
            "HOME": HOME,
            "TMPDIR": TMP,
            "LANG": "C.UTF-8",
            TOKEN_FILE_VARIABLE: str(relays.token),
        }
        launch = _Launch(asyncio.get_running_loop(), container, variables)
        sandboxes = RelayedSandboxes(session, relays.fleet, relays.original, secrets)
        yield DriverPlace(launch, sandboxes, f"http://127.0.0.1:{JOURNAL_PORT}")


@dataclass(frozen=True)
class _Launch:
    """Launches the driver in the container; see `LaunchDriver`."""

    loop: asyncio.AbstractEventLoop
    container: Container
    variables: Mapping[str, str] = field(repr=False)

    def __call__(self, hash_seed: str, log: IO[bytes], inherited: Sequence[int]) -> LaunchedDriver:
        del inherited  # of a terminal, which no service has
        order = CommandOrder(
            list(DRIVER),
            WORKSPACE,
            {**self.variables, "PYTHONHASHSEED": hash_seed},
            self.container.limits(),
            alone=True,
        )
        return launched(self.loop, lambda streams: self.container.begin(order, streams), self.container.close, log)
