"""Set up what sandboxes are started from, by the settings: a runtime, the program's source and a gateway."""

import functools
import os
import resource
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from evolverpc_common.network_addresses import Network
from evolverpc_common.open_connections import raise_descriptor_limit
from gepa_client.sandboxing.session_interface import LABEL_LENGTH, RUN_LABEL, SWEEP, Log
from gepa_client.sandboxing.session_messages import ENVIRONMENT, SessionMessage
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import BUILDS_IN_SANDBOX, parse_secret_header
from sandbox_runtime import (
    EnvironmentMissing,
    Open,
    ResourceLimits,
    RunningSandbox,
    Runtime,
    SandboxGone,
    egress_to,
)
from sandbox_runtime.backends import open_runtime
from sandbox_runtime.environments.build_folder import build_variables
from sandbox_runtime.gateway import (
    Gateway,
    GatewayPolicy,
    GatewayPorts,
    Provider,
    SecretHeader,
    configured,
    known,
    registry_headers,
)
from sandbox_runtime.source import ClientSandbox, ClientSettings, GitToken, Source

GITHUB = "github.com"

MOST_DESCRIPTORS = 65_536
"""Open files that this process allows itself: each sandbox may hold a few hundred of the gateway's."""


@asynccontextmanager
async def open_setup(
    settings: RunConfig,
    run_id: str,
    receive: Callable[[SessionMessage], None],
    *,
    allowed_networks: Sequence[Network] | None = None,
    source: Source | None = None,
    holds_model_calls: bool = False,
    publishes: bool = False,
) -> AsyncIterator["Setup"]:
    """Open the set-up that the settings describe; the gateway closes last, so that no sandbox outlives it.

    `allowed_networks`, `holds_model_calls`: as of `Gateway`. `source`: that of the settings, if it was read before.
    `publishes`: at Modal, build an environment that is not published.

    Raises:
        SandboxError: the runtime cannot be used here, or the source cannot be fetched.
        ValueError: a setting is invalid; the text names it.
        OSError: a file that the settings name cannot be read.
    """
    source = source or source_of(settings)
    log = functools.cache(lambda text: receive(Log(text)))  # each text once, although every sandbox reports it
    client = client_settings(settings, run_id)
    async with AsyncExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
        raise_descriptor_limit(MOST_DESCRIPTORS)
        gateway = None
        if settings.sandbox != "modal" or settings.gateway is not None:
            gateway = await stack.enter_async_context(_gateway(settings, receive, allowed_networks, holds_model_calls))
        runtime = await _runtime(stack, settings, receive)
        if left := [found for found in await runtime.found() if found.orphan]:
            log(f"sandboxes that ended processes have left: {len(left)}; on their machine this ends them: {SWEEP}")
        checkout = await source.ready(on_progress=log)
        recipe = client.recipe(checkout.needs)
        try:
            await runtime.prepare(recipe, on_progress=log)  # once, before all sandboxes ask for it
        except EnvironmentMissing:
            if settings.sandbox != "modal" or not publishes:
                raise
            await runtime.prepare(recipe, on_progress=log, rebuild=True)
        yield Setup(runtime, source, client, gateway, checkout.commit, log)


async def publish(settings: RunConfig, log: Callable[[str], None]) -> None:
    """Build the program's environment, also if it was built before, and keep it for later sandboxes.

    Raises:
        SandboxError, ValueError, OSError: as `open_setup`.
    """
    source = source_of(settings)
    async with AsyncExitStack() as stack:
        runtime = await _runtime(stack, settings, lambda _: None)
        checkout = await source.ready(on_progress=log)
        await runtime.prepare(ClientSettings().recipe(checkout.needs), on_progress=log, rebuild=True)


async def _runtime(
    stack: AsyncExitStack,
    settings: RunConfig,
    receive: Callable[[SessionMessage], None],
) -> Runtime:
    """Open the runtime; if the backend bounds what a build may connect to, these are hosts, and no models."""
    builds = None
    if settings.sandbox in BUILDS_IN_SANDBOX:
        headers = registry_headers(build_variables(os.environ), lambda text: receive(Log(text)))
        of_builds = Gateway(providers=(), policy=GatewayPolicy(), report=receive, registry_headers=headers)
        gateway = await stack.enter_async_context(of_builds)
        builds = gateway.open_session(ENVIRONMENT, egress_to(settings.build_hosts), opened_by="build_hosts")
    if settings.engine is None or settings.sandbox == "modal":
        opened = open_runtime(settings.sandbox, build_gateway_session=builds, app_name=settings.modal_app)
    else:
        from sandbox_runtime.nodes.ray_nodes import RayNodes
        from sandbox_runtime.nodes.runtime import NodesRuntime

        nodes = RayNodes(settings.engine, settings.sandboxes, settings.sandbox_cpu, settings.sandbox_memory_mb)
        opened = NodesRuntime(settings.sandbox, nodes, build_gateway_session=builds)
    return await stack.enter_async_context(opened)


@dataclass
class Setup:
    """What sandboxes are started from. `gateway`: None without one. `commit`: the full id of the one that all run."""

    runtime: Runtime
    source: Source
    settings: ClientSettings
    gateway: Gateway | None
    commit: str
    log: Callable[[str], None]
    started: dict[int, ClientSandbox] = field(default_factory=dict)
    """The last sandbox of each number; it may have ended."""

    def find(self, id_: str) -> ClientSandbox | None:
        """Return the sandbox of this id, None if the session has none; it may have ended."""
        return next((client for client in self.started.values() if client.id == id_), None)

    async def start(self, number: int) -> RunningSandbox:
        """Start a sandbox; see `sandbox_runtime.pool.StartSandbox`."""
        gateway, egress = self.gateway, self.settings.egress
        client = ClientSandbox(
            self.runtime,
            self.source,
            self.settings,
            name=f"sandbox {number}",
            open_session=None if gateway is None else functools.partial(gateway.open_session, egress=egress),
            on_progress=self.log,
        )
        try:
            await client.start()
        except BaseException:
            await client.close()
            raise
        self.started[number] = client
        return client

    async def at(self, url: str) -> ClientSandbox | None:
        """Return the sandbox with this endpoint; None if it has ended."""
        for client in tuple(self.started.values()):
            with suppress(SandboxGone):
                if (await client.endpoint()).url.removesuffix("/rpc") == url.removesuffix("/rpc"):
                    return client
        return None

    def release_model_calls(self) -> None:
        """Answer calls to models from now on; see `sandbox_runtime.gateway.Gateway`."""
        if self.gateway is not None:
            self.gateway.release_model_calls()

    def spent(self, usd: float) -> None:
        """Report what the whole run has spent so far, calls through this gateway included."""
        if self.gateway is not None:
            self.gateway.spend.run_spent(usd)


def source_of(settings: RunConfig) -> Source:
    """Return the program's repository. Raises `ValueError`, `SandboxError` or `OSError` if it cannot be read."""
    assert settings.repo is not None, "sandboxes are started from a repository"  # noqa: S101
    return Source(
        settings.repo, settings.ref or "HEAD", credentials=_credentials(settings), most_mb=settings.sandbox_workspace_mb
    )


def client_settings(settings: RunConfig, run_id: str) -> ClientSettings:
    """Return the settings that all sandboxes share. Raises `ValueError`."""
    missing = [name for name in settings.pass_env if name not in os.environ]
    if missing:
        raise ValueError(f"pass_env: {missing[0]} is not set in this environment")
    labels = {RUN_LABEL: run_id[:LABEL_LENGTH]}
    if settings.name and settings.name.isprintable():
        labels["name"] = settings.name[:LABEL_LENGTH]
    return ClientSettings(
        server_args=tuple(shlex.split(settings.server_args)),
        egress=Open() if settings.sandbox == "process" else egress_to(settings.allow_hosts),
        secrets={name: os.environ[name] for name in settings.pass_env},
        labels=labels,
        limits=ResourceLimits(
            cpu=settings.sandbox_cpu,
            memory_mb=settings.sandbox_memory_mb,
            workspace_mb=settings.sandbox_workspace_mb,
        ),
    )


def _gateway(
    settings: RunConfig,
    receive: Callable[[SessionMessage], None],
    allowed_networks: Sequence[Network] | None,
    holds_model_calls: bool,
) -> Gateway:
    policy = GatewayPolicy(
        models=settings.models,
        calls_per_minute=settings.model_calls_per_minute,
        cap_usd=settings.max_cost_usd,
        prices=settings.model_prices or {},
    )
    providers = providers_of(settings)
    if not providers:
        receive(Log("programs reach no model: no key is set (OPENAI_API_KEY, ANTHROPIC_API_KEY, or model_providers)"))
    port, public_url = settings.gateway_ports
    # With the other backends it listens on sockets of each sandbox.
    listen = GatewayPorts(port, public_url) if settings.sandbox == "modal" else None
    return Gateway(
        providers=providers,
        policy=policy,
        report=receive,
        secret_headers=_secret_headers(settings),
        listen=listen,
        allowed_networks=allowed_networks,
        holds_model_calls=holds_model_calls,
    )


def providers_of(settings: RunConfig) -> list[Provider]:
    """Return the providers whose keys this process's environment has, with those that the settings add."""
    further = [
        configured(name, environ=os.environ, **dict(provider))
        for name, provider in (settings.model_providers or {}).items()
    ]
    named = {provider.name for provider in further}
    return [*(provider for provider in known(os.environ) if provider.name not in named), *further]


def _secret_headers(settings: RunConfig) -> list[SecretHeader]:
    found = []
    for host, header, prefix, variable in map(parse_secret_header, settings.secret_headers):
        if not (secret := os.environ.get(variable)):
            reason = "is empty" if variable in os.environ else "is not set in this environment"
            raise ValueError(f"secret_headers: {variable}, for {header} of {host}, {reason}")
        try:
            found.append(SecretHeader(host, header, secret, prefix))
        except ValueError as error:
            raise ValueError(f"secret_headers: {error}") from None
    return found


def _credentials(settings: RunConfig) -> GitToken | None:
    if settings.git_token_file is None:
        return None
    return GitToken.from_file(settings.git_token_file, urlsplit(settings.repo or "").netloc or GITHUB)
