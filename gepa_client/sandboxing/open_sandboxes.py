"""Sandboxes that are open, in one event loop: their set-up, their pool, and what is read from their programs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolverpc_common.display_text import counted
from gepa_client.run.output_folder import unpack_artifacts
from gepa_client.sandboxing.remote_exec import serving_exec
from gepa_client.sandboxing.session_interface import Log
from gepa_client.sandboxing.session_messages import Setup
from gepa_client.settings.run_settings import MUTATION_LIMIT_S
from sandbox_runtime import SandboxError
from sandbox_runtime.endpoints_file import EndpointsFile, endpoints_folder
from sandbox_runtime.pool import PoolEvent, SandboxPool

IDLE_S = 60.0
"""Seconds of work for fewer sandboxes after which one ends."""

COLLECT_S = 120.0
"""Seconds that reading a program's files may take."""

SHOWN = 5
"""Files that are named one by one."""


@dataclass(frozen=True)
class OpenSandboxes:
    """A set-up and a pool that starts sandboxes from it. `fleet`: the file that lists those that are ready."""

    setup: Setup
    pool: SandboxPool
    fleet: Path

    async def collect_artifacts(self, endpoint: str, folder: Path) -> list[Log]:
        """Copy the program's artifacts from the sandbox of an endpoint; return what to report."""
        copied, left_out = list[str](), list[str]()
        try:
            async with asyncio.timeout(COLLECT_S):
                client = await self.setup.at(endpoint)
                contents = [] if client is None else await client.artifacts()
            for content in filter(None, contents):
                unpacked = await asyncio.to_thread(unpack_artifacts, content, folder)
                copied += unpacked[0]
                left_out += unpacked[1]
        except (SandboxError, OSError) as error:
            reason = str(error) or f"it took longer than {COLLECT_S:g} s"
            return [Log(f"the program's artifacts could not be copied from its sandbox: {reason}", is_warning=True)]
        logs = [Log(f"{counted(len(copied), 'file')} of the program copied to {folder}")] if copied else []
        if b"" in contents:
            logs.append(Log("the program's folder `artifacts` is not there: nothing was copied", is_warning=True))
        if left_out:
            more = f" and {len(left_out) - SHOWN} more" if len(left_out) > SHOWN else ""
            logs.append(
                Log(f"not copied from the program's artifacts: {', '.join(left_out[:SHOWN])}{more}", is_warning=True)
            )
        return logs

    async def program_config(self, endpoint: str) -> dict[str, Any]:
        """Return the `gepa.toml` of the program at an endpoint, which is untrusted; empty if there is none.

        Raises:
            SandboxError: it cannot be read.
        """
        try:
            async with asyncio.timeout(COLLECT_S):
                client = await self.setup.at(endpoint)
                return {} if client is None else await client.config()
        except TimeoutError:
            raise SandboxError(f"gepa.toml was not read within {COLLECT_S:g} s") from None


@asynccontextmanager
async def open_sandboxes(
    opening: Callable[[], AbstractAsyncContextManager[Setup]], size: int, on_event: Callable[[PoolEvent], None]
) -> AsyncIterator[OpenSandboxes]:
    """Open the set-up and start `size` sandboxes for the block; all end with it. `on_event`: as of `SandboxPool`.

    Raises:
        Exception: what `opening` raises.
    """
    with endpoints_folder() as folder:
        async with opening() as setup, serving_exec(folder, setup.find):
            file = EndpointsFile(folder)
            pool = SandboxPool(
                setup.start, size, endpoints_file=file, on_event=on_event, idle_s=IDLE_S, retire_s=MUTATION_LIMIT_S
            )
            async with pool:
                yield OpenSandboxes(setup, pool, file.path)
