"""Where the driver of a job runs, in a process of its own or in a container, and the files that it reads there."""

import asyncio
import contextlib
import functools
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from anyio.from_thread import start_blocking_portal

from evolverpc_common.files import plain_files, replace_file
from evolverpc_common.network_addresses import parse_networks
from evolverpc_common.redaction import Secrets
from gepa_client.journal.http_store import TOKEN_FILE_VARIABLE
from gepa_client.journal.run_events import Event, FleetChanged
from gepa_client.run.control_messages import ControlMessage, GatewayMessage
from gepa_client.run.supervisor import DRIVER, LaunchDriver, LaunchedDriver
from gepa_client.sandboxing.session import SandboxSession
from gepa_client.sandboxing.session_interface import Driver, Log, NoSandboxes, Show
from gepa_client.sandboxing.setup import providers_of
from gepa_service.jobs.http_front import HttpFront
from gepa_service.jobs.job_environment import basic_environment
from gepa_service.jobs.messages import OptimizeOrder
from gepa_service.jobs.piped_driver import launcher
from sandbox_runtime import Closed, Command, ResourceLimits, SandboxError
from sandbox_runtime.api.spec import MODELS_PORT, TUNNEL_PORT
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.backends.bubblewrap.container_command import (
    HOME,
    MODELS_URL,
    SYSTEM_PATH,
    TMP,
    VisiblePaths,
    package_mounts,
)
from sandbox_runtime.gateway import Gateway, GatewayPolicy, GatewayPorts

PACKAGES = ("gepa_client", "protocol", "evolverpc_common")
"""Packages that a driver imports."""

MEMORY_MB, PROCESSES, WORKSPACE_MB = 4096, 256, 256
LIFETIME_S = 30 * 24 * 3600.0
FRONT_PORT = 20_000

FOLLOW_S = 0.1
FIRST_COPIES = 20
READABLE = 0o644
"""Of files in a folder that the driver alone is shown; no other user of the machine reaches it."""

FLEET, TOKEN = "fleet", "token"
Push = Callable[[Mapping[str, str]], Awaitable[None]]


@dataclass(frozen=True)
class DriverPlace:
    """How the driver is launched. `sandboxes`: those of the job, at addresses that the driver reaches.

    `store`: the journal's address there. `fleet`: the endpoints file there, None if it has the same path as here. It is
    given no folder of this machine: its results are in the journal, its log comes through a pipe.
    """

    launch: LaunchDriver
    sandboxes: NoSandboxes
    store: str
    fleet: Path | None = None


@contextlib.contextmanager
def place_for(order: OptimizeOrder, session: SandboxSession, front: HttpFront | None = None) -> Iterator[DriverPlace]:
    """Prepare the place that the order names, for the block. `front`: of a job at Modal.

    Raises:
        SandboxError, OSError: it cannot be made.
    """
    if front is not None:
        from gepa_service.jobs.modal_driver import at_modal

        opening = at_modal(order, session, front)
    elif order.isolated:
        opening = _isolated(order, session)
    else:
        opening = _here(order, session)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(opening) as place:
        yield place


@contextlib.asynccontextmanager
async def _here(order: OptimizeOrder, session: SandboxSession) -> AsyncIterator[DriverPlace]:
    shared = order.folder / "shared"
    shared.mkdir(mode=0o700, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        front = HttpFront(f"http://127.0.0.1:{listener.getsockname()[1]}")
        async with (
            model_access(order, session, GatewayPorts()) as gateway,
            front.listening(listener),
            fronted_sandboxes(order, session, front, shared) as sandboxes,
        ):
            variables = {**own_model_variables(gateway), **front.route_to_collector(order.collector)}
            yield DriverPlace(_in_process(order, variables), sandboxes, order.api)


@contextlib.asynccontextmanager
async def _isolated(order: OptimizeOrder, session: SandboxSession) -> AsyncIterator[DriverPlace]:
    """Start a container for the block, and in it the driver.

    It has no file of the machine but Python, and no network but three ports: by one it reaches the journal of its job
    at the API, the servers of its job's sandboxes and the operator's collector, by the others models through a gateway
    that adds the keys. The container is one of `sandbox_runtime`: own namespaces, own user, limits, a filter of system
    calls.

    Raises:
        SandboxError, OSError: it cannot be started.
    """
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
        sandboxes = await stack.enter_async_context(fronted_sandboxes(order, session, front, shared))
        variables = {
            **access.env(MODELS_URL, None),
            **front.route_to_collector(order.collector),
            "PATH": ":".join(SYSTEM_PATH),
            "HOME": HOME,
            "TMPDIR": TMP,
            "LANG": "C.UTF-8",
            TOKEN_FILE_VARIABLE: str(shared / TOKEN),
        }

        async def begin(env: Mapping[str, str], streams: Sequence[int]) -> asyncio.Future[int]:
            return await container.begin(Command(tuple(DRIVER), env=env), streams)

        store = front.route_to_journal(order.api, order.id)
        yield DriverPlace(launcher(begin, container.close, variables), sandboxes, store)


@contextlib.asynccontextmanager
async def fronted_sandboxes(
    order: OptimizeOrder, session: SandboxSession, front: HttpFront, shared: Path, push: Push | None = None
) -> AsyncIterator["FrontedSandboxes"]:
    """Let the driver reach the job's sandboxes by the front, for the block; yield them.

    `shared`: the folder that the driver reads, its token too. `push`: see `fleet_mirror`. Raises `OSError`.
    """
    secrets = Secrets(order.redacted, declared=True)
    original: dict[str, str] = {}

    @functools.cache
    def address(server: str) -> str:
        fronted = front.route(f"server-{len(original)}", server, secrets)
        original[fronted] = server
        return fronted

    async with fleet_mirror(shared, session.settings.fleet, order.token_file, address, push):
        yield FrontedSandboxes(session, shared / FLEET, original, secrets)


def model_access(order: OptimizeOrder, session: NoSandboxes, ports: GatewayPorts | None) -> Gateway:
    """Return the gateway of the driver, through which it calls models without a key, to be opened.

    What its calls cost is counted by the driver, as that of every run.
    """
    return Gateway(
        providers=providers_of(session.settings),
        policy=GatewayPolicy(prices=session.settings.model_prices or {}),
        report=lambda _event: None,
        listen=ports,
        allowed_networks=parse_networks(order.allow_networks),
    )


def own_model_variables(gateway: Gateway) -> Mapping[str, str]:
    """Return the variables by which a driver finds the gateway at its own address."""
    opened = gateway.open_session("driver", Closed())
    return opened.env(opened.models_url or "", None)


def _in_process(order: OptimizeOrder, variables: Mapping[str, str]) -> LaunchDriver:
    def launch(hash_seed: str, log: IO[bytes], inherited: Sequence[int]) -> LaunchedDriver:
        own = {"PYTHONHASHSEED": hash_seed, TOKEN_FILE_VARIABLE: str(order.token_file)}
        process: LaunchedDriver = subprocess.Popen(  # noqa: S603  our own command
            list(DRIVER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**basic_environment(order.folder), **variables, **own},
            cwd=order.folder,
            start_new_session=True,
            pass_fds=inherited,
        )
        return process

    return launch


class FrontedSandboxes(NoSandboxes):
    """The session of a job's sandboxes for a driver that reaches them at other addresses.

    `fleet`: the endpoints file that the driver reads. `original`: the sandboxes' addresses by those that it knows.
    `secrets`: are replaced in each message to the driver: programs choose the names of models and hosts that they ask.
    """

    def __init__(self, session: SandboxSession, fleet: Path, original: Mapping[str, str], secrets: Secrets) -> None:
        super().__init__(session.settings.model_copy(update={"fleet": fleet}))
        self._session = session
        self._original = original
        self._secrets = secrets

    @property
    def has_gateway(self) -> bool:
        return self._session.has_gateway

    def displayed(self, event: Event) -> Event | None:
        return self._session.displayed(self._outside(event))

    @contextlib.contextmanager
    def reporting_to(self, driver: Driver) -> Iterator[None]:
        with self._session.reporting_to(_WithoutSecrets(driver, self._secrets)):
            yield

    def collect_artifacts(self, endpoint: str, folder: Path) -> list[Log]:
        logs = self._session.collect_artifacts(self._address(endpoint), folder)
        for name, file in plain_files(folder):
            data = file.read()
            if (clean := self._secrets.redact_json(data)) != data:
                (folder / name).write_bytes(clean)
        return logs

    def write_connections(self, file: Path) -> None:
        self._session.write_connections(file)

    def end(self) -> list[GatewayMessage]:
        return [type(each).model_validate(self._secrets.redact(each.model_dump())) for each in self._session.end()]

    def forward(self, driver: Driver, show: Show) -> None:
        self._session.forward(_WithoutSecrets(driver, self._secrets), show)

    def observe(self, event: Event) -> None:
        self._session.observe(self._outside(event))

    def _outside(self, event: Event) -> Event:
        if isinstance(event, FleetChanged) and event.url is not None:
            return event.model_copy(update={"url": self._address(event.url)})
        return event

    def _address(self, url: str) -> str:
        return self._original.get(_server(url), url)


@dataclass(frozen=True)
class _WithoutSecrets:
    """A driver that gets messages without secrets."""

    driver: Driver
    secrets: Secrets

    def send(self, message: ControlMessage) -> None:
        self.driver.send(type(message).model_validate(self.secrets.redact(message.model_dump())))

    def stop(self, reason: str | None = None) -> None:
        self.driver.stop(None if reason is None else self.secrets.redact_text(reason))


def _server(url: str) -> str:
    return url.removesuffix("/rpc").rstrip("/")


@contextlib.asynccontextmanager
async def fleet_mirror(
    shared: Path, fleet: Path | None, token: Path, address: Callable[[str], str], push: Push | None = None
) -> AsyncIterator[None]:
    """Keep a copy of a job's endpoints file, its tokens and the job token in the folder `shared` for the block.

    The driver reads it, as `FLEET` and `TOKEN`, and reaches a server at its `address`. `fleet`: the endpoints file;
    None without sandboxes. `token`: the file of the job token. `push`: sends changed files, by name, to a driver on
    another machine; None if the driver reads the folder itself. Raises `OSError`.
    """
    written: dict[str, str] = {}

    async def copy() -> None:
        found = _copied(fleet, token, address)
        files = {name: text for name, text in found.items() if written.get(name) != text}
        for name, text in files.items():
            replace_file(shared / name, text, mode=READABLE)
        if files and push is not None:
            await push(files)
        written.update(files)

    async def follow() -> None:
        failure: str | None = None
        while True:
            await asyncio.sleep(FOLLOW_S)
            try:
                await copy()
                failure = None
            except FileNotFoundError:
                continue  # a sandbox has ended, or the session ends: it is read again
            except (OSError, SandboxError) as error:  # tried again, stated once
                if str(error) != failure:
                    failure = str(error)
                    print(f"the driver's files are not up to date: {failure}", file=sys.stderr, flush=True)

    for tries_left in reversed(range(FIRST_COPIES)):
        try:
            await copy()
            break
        except FileNotFoundError:  # a sandbox that was listed has ended, and its token is gone: it is read again
            if not tries_left:
                raise
            await asyncio.sleep(FOLLOW_S)
    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])


def _copied(fleet: Path | None, token: Path, address: Callable[[str], str]) -> dict[str, str]:
    """Return the files of the copy by their names. Raises `OSError`."""
    found, lines = {TOKEN: token.read_text()}, []
    if fleet is not None:
        for line in fleet.read_text().splitlines():
            url, *fields = line.split()
            for each in fields:
                name = each.partition("=")[2]
                found[name] = (fleet.parent / name).read_text()
            lines.append(" ".join([address(url), *fields]) + "\n")
        found[FLEET] = "".join(lines)  # the last one: it names the others
    return found
