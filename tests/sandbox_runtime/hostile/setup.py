"""The canaries that a hostile program must not reach, and two sandboxes that serve it."""

import asyncio
import contextlib
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from gepa_client.transport.rpc_client import RpcClient
from sandbox_runtime import Allow, ResourceLimits
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.gateway import Gateway, GatewayEvent, GatewayPolicy, openai
from sandbox_runtime.source import ClientSandbox, ClientSettings, Source
from tests.sandbox_runtime.gateway.stub_provider import KEY, StubProvider
from tests.sandbox_runtime.source.repositories import commit

PROGRAM = Path(__file__).parent / "program"
REBOUND = "rebound.example"
SETTINGS = 'program = "program.py"\nexample_timeout_s = 10\nworkers = 2\n'


@dataclass
class HostileSetup:
    """`canary`: a text that only the host has. `example`: the data of every example, with the places to look."""

    canary: str
    example: dict[str, Any]
    journal: Path
    containers: list[ClientSandbox]
    events: list[GatewayEvent] = field(default_factory=list)

    async def evaluate(self, attempts: Sequence[str], container: int = 0, text: str = "") -> list[dict[str, Any]]:
        """Their results, one batch of a sandbox."""
        endpoint = await self.containers[container].endpoint()
        async with RpcClient(endpoint.url, token=endpoint.token, timeout_s=110) as client:
            batch = [{"id": name, "data": {**self.example, "attempt": name}} for name in attempts]
            answer = await client.evaluate({"text": text}, batch)
        results: list[dict[str, Any]] = answer["results"]
        return results


@contextlib.asynccontextmanager
async def hostile_setup(folder: Path) -> AsyncIterator[HostileSetup]:
    """Two sandboxes of the hostile program, each with a gateway session, and canaries in every place it may read."""
    canary = f"canary-{secrets.token_hex(8)}"
    repository = folder / "repository"
    shutil.copytree(PROGRAM, repository, ignore=shutil.ignore_patterns("__pycache__"))
    commit(repository, {"gepa.toml": SETTINGS, "requirements.txt": ""})
    journal = folder / f"journal-{canary}"
    journal.write_text(canary)
    journal.chmod(0o666)
    shared = Path("/dev/shm") / canary  # noqa: S108  where the host's programs share memory
    shared.write_text(canary)
    example = {
        "canary": canary,
        "canary_name": canary,
        "canary_file": str(journal),
        "journal": str(journal),
        "key": KEY,
        "abstract": canary,
        "rebound": REBOUND,
    }
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shared.unlink)
        example["port"] = await _serve_canary(stack, canary)
        provider = await stack.enter_async_context(StubProvider())
        provider.answer = _careless
        hostile = HostileSetup(canary, example, journal, [])
        gateway = await stack.enter_async_context(
            Gateway(
                providers=(openai(KEY, f"{provider.url}/v1"),),
                policy=GatewayPolicy(),
                report=hostile.events.append,
                resolve=_rebound,
            )
        )
        runtime = await stack.enter_async_context(BubblewrapBackend())
        egress = Allow(domains=(REBOUND,))
        settings = ClientSettings(egress=egress, limits=ResourceLimits(memory_mb=384, workspace_mb=128, processes=192))
        for name in ("hostile-0", "hostile-1"):
            container = ClientSandbox(
                runtime,
                Source(str(repository), cache=folder / "cache"),
                settings,
                name=name,
                open_session=lambda name: gateway.open_session(name, egress),
            )
            hostile.containers.append(await stack.enter_async_context(container))
        await asyncio.gather(*(container.start() for container in hostile.containers))
        yield hostile


async def _rebound(host: str, port: int) -> Sequence[str]:
    if host != REBOUND:
        raise OSError(f"{host} is not known")
    return ["127.0.0.1"]


async def _careless(request: web.Request) -> web.StreamResponse:
    """A provider that returns to the caller everything it was sent."""
    headers = {f"X-Seen-{name}": value for name, value in request.headers.items()}
    sent = str(dict(request.headers))
    asked = await request.json() if request.can_read_body else {}
    if not asked.get("stream"):
        return web.json_response({"seen": sent, "usage": {}}, status=500 if asked.get("fail") else 200, headers=headers)
    response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
    await response.prepare(request)
    half = sent.index(KEY) + len(KEY) // 2 if KEY in sent else len(sent) // 2
    for part in (f"data: {sent[:half]}", f"{sent[half:]}\n\n", "data: [DONE]\n\n"):
        await response.write(part.encode())
    await response.write_eof()
    return response


async def _serve_canary(stack: contextlib.AsyncExitStack, canary: str) -> int:
    """Send the canary to every client on loopback and on an abstract socket of the host; return the loopback port."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{canary}".encode())
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    stack.callback(server.close)
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0{canary}")
    stack.callback((await asyncio.start_unix_server(answer, sock=abstract)).close)
    port: int = server.sockets[0].getsockname()[1]
    return port
