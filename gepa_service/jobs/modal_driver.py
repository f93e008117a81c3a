"""The driver of a job in a sandbox at Modal: it reaches the API and its job's front, and has no secret but its tokens.

Through the front are the servers of its job's sandboxes, and models by a gateway that adds the keys. The files that it
reads, among them the job token, are written into the sandbox whenever they change.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from evolverpc_common.network_addresses import free_port
from evolverpc_common.output_tail import OutputTail
from gepa_client.journal.http_store import TOKEN_FILE_VARIABLE
from gepa_client.run.supervisor import DRIVER
from gepa_client.sandboxing.session import SandboxSession
from gepa_client.sandboxing.session_interface import LABEL_LENGTH, RUN_LABEL
from gepa_service.jobs.driver_place import (
    FLEET,
    PACKAGES,
    TOKEN,
    DriverPlace,
    fronted_sandboxes,
    model_access,
    own_model_variables,
)
from gepa_service.jobs.http_front import HttpFront
from gepa_service.jobs.messages import OptimizeOrder
from gepa_service.jobs.piped_driver import launcher
from sandbox_runtime import Allow, Command, ResourceLimits, SandboxError, SandboxSpec
from sandbox_runtime.api.sandbox import LOG_BYTES
from sandbox_runtime.backends.image_setup import SERVER_PYTHON, WORKSPACE
from sandbox_runtime.backends.modal.backend import APP, ModalBackend
from sandbox_runtime.backends.modal.sandbox import ModalSandbox
from sandbox_runtime.gateway import GatewayPorts

EXTRAS = ("client",)
DRIVER_ROUTE = "driver"
LIMITS = ResourceLimits(cpu=2.0, memory_mb=4096, workspace_mb=256, processes=512, lifetime_s=24 * 3600.0)
SHARED = f"{WORKSPACE}/shared"
WRITE_S = 30.0

WRITE = """
import json, os, sys
os.makedirs(sys.argv[1], exist_ok=True)
for name, text in json.load(sys.stdin).items():
    path = os.path.join(sys.argv[1], name)
    with open(path + "~", "w") as file:
        file.write(text)
    os.replace(path + "~", path)
"""


@contextlib.asynccontextmanager
async def at_modal(order: OptimizeOrder, session: SandboxSession, front: HttpFront) -> AsyncIterator[DriverPlace]:
    """Start the driver's sandbox for the block.

    Raises:
        SandboxError, OSError: it cannot be started.
    """
    async with contextlib.AsyncExitStack() as stack:
        port = free_port()
        models = front.route(DRIVER_ROUTE, f"http://127.0.0.1:{port}")
        ports = GatewayPorts(models_port=port, public_models_url=models)
        gateway = await stack.enter_async_context(model_access(order, session, ports))
        backend = ModalBackend(session.settings.modal_app or APP)
        await backend.open()
        spec = SandboxSpec(
            main=Command(()),
            prepared=await backend.packages_image(PACKAGES, EXTRAS, on_progress=print),
            egress=Allow(tuple(dict.fromkeys(urlsplit(url).hostname or "" for url in (order.api, front.url)))),
            labels={RUN_LABEL: order.id[:LABEL_LENGTH], "purpose": "driver"},
            limits=LIMITS,
        )
        try:
            async with asyncio.timeout(spec.ready_s):
                sandbox = await backend.begin(spec, OutputTail(LOG_BYTES))
        except TimeoutError:
            raise SandboxError(f"Modal made no sandbox for the driver within {spec.ready_s:g} s") from None
        end = partial(backend.stop, sandbox.id)
        stack.push_async_callback(end)
        shared = order.folder / "shared"
        shared.mkdir(mode=0o700, exist_ok=True)
        push = partial(_write, sandbox)
        sandboxes = await stack.enter_async_context(fronted_sandboxes(order, session, front, shared, push))
        variables = {
            **own_model_variables(gateway),
            "LANG": "C.UTF-8",
            TOKEN_FILE_VARIABLE: f"{SHARED}/{TOKEN}",
        }

        async def begin(env: Mapping[str, str], streams: Sequence[int]) -> "asyncio.Future[int]":
            return await sandbox.begin(Command((SERVER_PYTHON, *DRIVER[1:]), env=env), streams)

        launch = launcher(begin, end, variables)
        yield DriverPlace(launch, sandboxes, store=order.api, fleet=Path(SHARED, FLEET))


async def _write(sandbox: ModalSandbox, files: Mapping[str, str]) -> None:
    """Write files into the folder that the driver reads."""
    command = (SERVER_PYTHON, "-I", "-S", "-c", WRITE, SHARED)
    written = Command(command, stdin=json.dumps(dict(files)).encode(), timeout_s=WRITE_S)
    output = OutputTail(500)
    if await sandbox.run(written, output) != 0:
        reason = output.text()
        raise SandboxError(f"the driver's files cannot be written at Modal: {reason or 'it took too long'}")
