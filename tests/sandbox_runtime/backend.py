"""What the suite of all backends stands on: a runtime of one of them, and what is to be seen of it from outside."""

import asyncio
import contextlib
import importlib
import importlib.util
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sandbox_runtime import (
    Allow,
    Closed,
    Command,
    Egress,
    Open,
    PreparedEnvironment,
    Recipe,
    ResourceLimits,
    Runtime,
    Sandbox,
    SandboxSpec,
    ServerEndpoint,
)
from sandbox_runtime.runtime import reached_by
from tests.sandbox_runtime.stub_server import SOURCE
from tests.support.docker_daemon import containers, no_daemon

NAMES_OF_ANY_SHELL = {"PATH", "HOME", "TMPDIR", "LANG", "PWD", "SHLVL", "_", "LC_CTYPE", "USER", "LOGNAME", "SHELL"}


@dataclass
class BackendUnderTest:
    """`egress`: what is asked for where a test is not about it. `refused`: what the backend cannot enforce.

    `folders`: everything the backend keeps on this machine is in them; `own`: what of it is not of sandboxes.
    `own_names`: further variables that the backend itself sets. `another`: Python that makes the same runtime in
    another process. `short_s`: a time in which the stand-in is surely ready, and that is short to wait for. `settle_s`:
    how long processes may take to end where another machine runs them and must end them first. `outlive`: sandboxes
    that cannot be freed outlive the runtime.
    """

    runtime: Runtime
    prepared: PreparedEnvironment
    egress: Egress
    refused: tuple[Egress, ...]
    folders: tuple[Path, ...] = ()
    own: frozenset[Path] = frozenset()
    own_names: frozenset[str] = frozenset()
    another: str = ""
    short_s: float = 3.0
    settle_s: float = 0.0
    outlive: bool = True
    run: str = field(default_factory=lambda: secrets.token_hex(8))

    def python(self, code: str, *arguments: str, **options: Any) -> Command:
        """A command of the sandbox's Python."""
        return Command((self.prepared.server[0], "-I", "-S", "-c", code, *arguments), **options)

    def shell(self, script: str, **options: Any) -> Command:
        """A command of its shell."""
        return Command(("sh", "-c", script), **options)

    def spec(self, **changes: Any) -> SandboxSpec:
        """Of a sandbox with the stand-in as its server; every process of it has `SUITE_RUN` in its environment."""
        changes["env"] = {"SUITE_RUN": self.run, **changes.get("env", {})}
        changes["labels"] = {"suite": self.run, **changes.get("labels", {})}
        usual = SandboxSpec(
            main=self.python(SOURCE.decode()),
            prepared=self.prepared,
            egress=self.egress,
            limits=ResourceLimits(memory_mb=512),
            ready_s=30.0,
        )
        return replace(usual, **changes)

    async def started(self, **changes: Any) -> Sandbox:
        """Start one that is ended with the runtime."""
        return await self.runtime.start(self.spec(**changes))

    def processes(self, name: str = "SUITE_RUN") -> list[int]:
        """Those on this machine with this variable in their environment."""
        wanted = f"\0{name}={self.run}\0".encode()
        return [pid for pid, environment in _environments() if wanted in b"\0" + environment]

    async def outlived(self, name: str = "SUITE_RUN") -> list[int]:
        """The same when all of them should have ended."""
        deadline = time.monotonic() + self.settle_s
        while self.processes(name) and time.monotonic() < deadline:  # noqa: ASYNC110  they are no children of ours
            await asyncio.sleep(0.02)
        return self.processes(name)

    async def left(self) -> list[str]:
        """What there still is of any sandbox of this test."""
        outlived = await self.outlived()
        kept = [str(path) for folder in self.folders if folder.exists() for path in {*folder.glob("*")} - self.own]
        found = [f"found {one.id}" for one in await self.runtime.found({"suite": self.run})]
        return [*kept, *found, *(f"process {pid}" for pid in outlived)]


async def parse_request(endpoint: ServerEndpoint, token: str | None = None, **asked: Any) -> tuple[int, dict[str, Any]]:
    """Status and answer of the stand-in."""
    token = endpoint.token if token is None else token
    headers = {"Authorization": f"Bearer {token}"}
    if endpoint.proxy_token is not None:
        headers = {"Authorization": f"Bearer {endpoint.proxy_token}", "X-Gepa-Token": token}
    connector, url = reached_by(endpoint.url)
    limit = aiohttp.ClientTimeout(total=20)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=limit) as session,
        session.post(f"{url}/rpc", json=asked, headers=headers) as answer,
    ):
        return answer.status, json.loads(await answer.read() or b"{}")


@contextlib.asynccontextmanager
async def local_backend(kind: str, **further: Any) -> AsyncIterator[BackendUnderTest]:
    """One that runs sandboxes on this machine, with records of the test's own."""
    module = f"sandbox_runtime.backends.{kind}" + (".backend" if kind != "process" else "")
    name = f"{kind.capitalize()}Backend"
    with short_folder() as base, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(base / "state"))
        patch.setenv("XDG_RUNTIME_DIR", str(base))
        async with getattr(importlib.import_module(module), name)() as runtime:
            yield BackendUnderTest(
                runtime=runtime,
                prepared=await runtime.prepare(Recipe(), on_progress=lambda _: None),
                folders=(base / "state" / "evolverpc" / "sandboxes" / kind, base / "evolverpc"),
                another=f"from {module} import {name}\nruntime = {name}()\n",
                **{"egress": Closed(), "refused": (Open(), Allow(domains=("example.com",))), **further},
            )


def process_backend() -> AbstractAsyncContextManager[BackendUnderTest]:
    return local_backend("process", egress=Open(), refused=(Closed(),))


def bubblewrap_backend() -> AbstractAsyncContextManager[BackendUnderTest]:
    certificates = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
    return local_backend("bubblewrap", own_names=frozenset({*certificates, "GEPA_PROCESS_MEMORY_MB"}))


@contextlib.asynccontextmanager
async def docker_backend() -> AsyncIterator[BackendUnderTest]:
    async with local_backend("docker", short_s=6.0, settle_s=5.0) as backend:
        yield backend
        assert containers() == []


@contextlib.asynccontextmanager
async def modal_backend() -> AsyncIterator[BackendUnderTest]:
    from sandbox_runtime.backends.modal.backend import ModalBackend
    from tests.sandbox_runtime.modal.serving_sandbox import published
    from tests.support.modal_cloud import loopback_modal

    async with loopback_modal() as cloud, ModalBackend() as runtime:
        yield BackendUnderTest(
            runtime=runtime,
            prepared=published(cloud),
            egress=Closed(),
            refused=(),
            own_names=frozenset({"GEPA_ALLOWED_HOSTS"}),
            settle_s=5.0,
        )
        assert cloud.running == []


@contextlib.asynccontextmanager
async def nodes_backend() -> AsyncIterator[BackendUnderTest]:
    from sandbox_runtime.nodes.runtime import NodesRuntime
    from tests.sandbox_runtime.node_hosts import LocalHosts

    with short_folder() as base, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(base / "state"))
        patch.setenv("XDG_RUNTIME_DIR", str(base))
        async with LocalHosts(1) as hosts, NodesRuntime("bubblewrap", hosts) as runtime:
            certificates = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
            own = frozenset((base / "evolverpc").iterdir())  # of the host and of the run
            yield BackendUnderTest(
                runtime=runtime,
                prepared=await runtime.prepare(Recipe(), on_progress=lambda _: None),
                egress=Closed(),
                refused=(Open(), Allow(domains=("example.com",))),
                folders=(base / "state" / "evolverpc" / "sandboxes" / "bubblewrap", base / "evolverpc", *own),
                own=own,
                own_names=frozenset({*certificates, "GEPA_PROCESS_MEMORY_MB", "GEPA_ALLOWED_HOSTS"}),
                outlive=False,
            )


BACKENDS: dict[str, Callable[[], AbstractAsyncContextManager[BackendUnderTest]]] = {
    "process": process_backend,
    "bubblewrap": bubblewrap_backend,
    "docker": docker_backend,
    "modal": modal_backend,
    "nodes": nodes_backend,
}


local = pytest.mark.parametrize(
    "backend", ["process", "bubblewrap", pytest.param("docker", marks=pytest.mark.long)], indirect=True
)
"""For tests of what backends of this machine alone can do."""


def missing(backend: str) -> str | None:
    """What a backend needs that is not here, and how to get it."""
    if sys.platform != "linux":
        return f"{backend}: needs Linux"
    if backend == "docker":
        return no_daemon()
    if backend != "process" and shutil.which("bwrap") is None:
        return f"{backend}: needs bubblewrap (apt-get install bubblewrap)"
    if backend == "modal" and importlib.util.find_spec("modal") is None:
        return "modal: needs its package (pip install '.[modal]')"
    return None


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder for sockets: pytest's own have paths that are too long."""
    folder = Path(tempfile.mkdtemp(prefix="ev", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _environments() -> Iterator[tuple[int, bytes]]:
    for name in os.listdir("/proc"):  # noqa: PTH208  it is looked at often, and Paths take longer than reading
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123  as above
                yield int(name), file.read()
