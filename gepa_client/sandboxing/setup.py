"""What the sandboxes of a command are started from, by its settings: a runtime, the program's source, and a gateway."""

import os
import resource
import shlex
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from gepa_client.cli.commands.sandboxes import LABEL_LENGTH, RUN
from gepa_client.sandboxing.session import SWEEP
from gepa_client.sandboxing.session_thread import Capped, Ground, Said, Told
from gepa_client.settings.run_config import RunConfig
from sandbox_runtime import Egress, Ended, Endpoint, Open, Passage, Runtime, allowing
from sandbox_runtime.backends.choose import open_runtime
from sandbox_runtime.gateway import Gateway, Listen, Policy, Provider, configured, known
from sandbox_runtime.pool import Member
from sandbox_runtime.source import ClientSandbox, ClientSettings, GitCredentials, GitToken, Source

GITHUB = "github.com"

MOST_DESCRIPTORS = 65_536


@asynccontextmanager
async def ground(settings: RunConfig, run_id: str, tell: Callable[[Told], None]) -> AsyncIterator[Ground]:
    """Opened as the settings say; the gateway ends last, so that no sandbox outlives it.

    Raises:
        SandboxError: the runtime cannot be used here, or the source cannot be had.
        ValueError: a setting cannot be what it is; the text says which.
        OSError: a file that the settings name cannot be read.
    """
    source = source_of(settings)
    told = _once(lambda text: tell(Said(text)))
    client = client_settings(settings, run_id)
    async with AsyncExitStack() as stack:
        stack.enter_context(_descriptors())
        gateway = None
        if settings.sandbox != "modal" or settings.gateway_url is not None:
            gateway = await stack.enter_async_context(_gateway(settings, tell))
        builds = await stack.enter_async_context(_way_out_of_builds(settings, tell))
        runtime = await stack.enter_async_context(_runtime(settings, builds))
        if left := [found for found in await runtime.found() if found.orphan]:
            told(f"{len(left)} sandboxes of processes that are gone are still there; this ends them: {SWEEP}")
        checkout = await source.ready(told=told)
        await runtime.prepare(client.recipe(checkout.needs), told=told)  # once, before twenty ask for it
        yield _Ground(runtime, source, client, gateway, checkout.commit, told)


@contextmanager
def _descriptors() -> Iterator[None]:
    """As many open files as this process may have: each sandbox may hold a few hundred of the gateway's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= most:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def publish(settings: RunConfig, told: Callable[[str], None]) -> None:
    """Build what the program needs installed, again where it was built before, and keep it for sandboxes to come.

    Raises:
        SandboxError, ValueError, OSError: as `ground`.
    """
    source = source_of(settings)
    async with AsyncExitStack() as stack:
        builds = await stack.enter_async_context(_way_out_of_builds(settings, lambda _: None))
        runtime = await stack.enter_async_context(_runtime(settings, builds))
        checkout = await source.ready(told=told)
        await runtime.prepare(ClientSettings().recipe(checkout.needs), told=told, afresh=True)


@asynccontextmanager
async def _way_out_of_builds(settings: RunConfig, tell: Callable[[Told], None]) -> AsyncIterator[Passage | None]:
    """What somebody's code may reach while an environment is built, where that is bounded: hosts, and no models."""
    if settings.sandbox != "bubblewrap":
        yield None
        return
    async with Gateway(
        providers=(), policy=Policy(), on_call=tell, on_refusal=tell, on_cap=lambda: tell(Capped())
    ) as gateway:
        yield gateway.passage("environment", allowing(settings.build_hosts), opened_by="build_hosts")


def _runtime(settings: RunConfig, builds: Passage | None) -> Runtime:
    return open_runtime(settings.sandbox, build_way_out=builds, app_name=settings.modal_app)


class _Ground:
    def __init__(
        self,
        runtime: Runtime,
        source: Source,
        settings: ClientSettings,
        gateway: Gateway | None,
        commit: str,
        told: Callable[[str], None],
    ) -> None:
        self.commit = commit
        self._runtime = runtime
        self._source = source
        self._settings = settings
        self._gateway = gateway
        self._told = told

    async def start(self, number: int) -> Member:
        way_out = self._passage if self._gateway is not None else None
        client = ClientSandbox(
            self._runtime, self._source, self._settings, name=f"sandbox {number}", way_out=way_out, told=self._told
        )
        try:
            await client.start()
        except BaseException:
            await client.close()
            raise
        return _Started(client, client.id or "")

    def spent(self, usd: float) -> None:
        gateway = self._gateway
        if gateway is not None:  # what it is told is a little old, so that this gateway's own part is never too small
            gateway.elsewhere_usd = max(gateway.elsewhere_usd, usd - gateway.spent_usd)

    def _passage(self, name: str) -> Passage:
        assert self._gateway is not None, "asked for where there is one"  # noqa: S101
        passage = self._gateway.passage(name, self._settings.egress)
        return _ModelsAlone(passage) if self._runtime.name == "modal" else passage


@dataclass(frozen=True)
class _Started:
    """A client's sandbox that is up, and not to be started again."""

    client: ClientSandbox
    id: str

    async def endpoint(self) -> Endpoint:
        return await self.client.endpoint()

    async def wait(self) -> Ended:
        return await self.client.wait()

    async def close(self) -> None:
        await self.client.close()


@dataclass(frozen=True)
class _ModelsAlone:
    """A passage without its proxy: Modal enforces by itself what else may be reached, and that directly."""

    passage: Passage

    @property
    def models_url(self) -> str | None:
        return self.passage.models_url

    @property
    def tunnel_url(self) -> str | None:
        return self.passage.models_url

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        await self.passage.serve(models, tunnel)

    def env(self, models_url: str, tunnel_url: str) -> Mapping[str, str]:
        found = self.passage.env(models_url, tunnel_url)
        return {name: value for name, value in found.items() if not name.lower().endswith("_proxy")}

    async def close(self) -> None:
        await self.passage.close()


def source_of(settings: RunConfig) -> Source:
    """The program's repository. Raises `ValueError`, `SandboxError` or `OSError` where it cannot be named or read."""
    assert settings.repo is not None, "sandboxes are started from one"  # noqa: S101
    return Source(
        settings.repo, settings.ref or "HEAD", credentials=_credentials(settings), most_mb=settings.sandbox_workspace_mb
    )


def client_settings(settings: RunConfig, run_id: str) -> ClientSettings:
    """What all of the sandboxes have in common. Raises `ValueError`."""
    missing = [name for name in settings.pass_env if name not in os.environ]
    if missing:
        raise ValueError(f"pass_env: {missing[0]} is not set in this environment")
    labels = {RUN: run_id[:LABEL_LENGTH]}
    if settings.name and settings.name.isprintable():
        labels["name"] = settings.name[:LABEL_LENGTH]
    return ClientSettings(
        server_args=tuple(shlex.split(settings.server_args)),
        egress=_egress(settings),
        secrets={name: os.environ[name] for name in settings.pass_env},
        labels=labels,
        cpu=settings.sandbox_cpu,
        memory_mb=settings.sandbox_memory_mb,
        workspace_mb=settings.sandbox_workspace_mb,
        lifetime_s=settings.sandbox_lifetime_s,
        ready_s=settings.sandbox_ready_s,
    )


def _egress(settings: RunConfig) -> Egress:
    return Open() if settings.sandbox == "process" else allowing(settings.allow_hosts)


def _gateway(settings: RunConfig, tell: Callable[[Told], None]) -> Gateway:
    policy = Policy(
        models=settings.models,
        calls_per_minute=settings.model_calls_per_minute,
        cap_usd=settings.max_cost_usd,
        prices=settings.model_prices or {},
        ports=None,  # whoever names a host means the host
    )
    providers = _providers(settings)
    if not providers:
        tell(Said("programs reach no model: no key is set (OPENAI_API_KEY, ANTHROPIC_API_KEY, or model_providers)"))
    listen = {
        "bubblewrap": None,  # it has sockets of each sandbox's own to answer on
        "process": Listen(),
        "modal": Listen(models_port=settings.gateway_port or 0, public_models_url=settings.gateway_url),
    }[settings.sandbox]
    return Gateway(
        providers=providers,
        policy=policy,
        on_call=tell,
        on_refusal=tell,
        on_cap=lambda: tell(Capped()),
        listen=listen,
    )


def _providers(settings: RunConfig) -> list[Provider]:
    further = [
        configured(
            name,
            provider.base_url,
            os.environ,
            key_env=provider.key_env,
            dialect=provider.dialect,
            key_header=provider.key_header,
            counts_streams=provider.counts_streams,
            extra_fields=provider.extra_fields,
        )
        for name, provider in (settings.model_providers or {}).items()
    ]
    named = {provider.name for provider in further}
    return [*(provider for provider in known(os.environ) if provider.name not in named), *further]


def _credentials(settings: RunConfig) -> GitCredentials | None:
    host = urlsplit(settings.repo or "").netloc or GITHUB
    if settings.git_token_file is not None:
        return GitToken.from_file(settings.git_token_file, host)
    if settings.github_app_id is None or settings.github_app_key_file is None:
        return None
    from sandbox_runtime.source.github_app import App, GitHubApp  # knows cryptography, which others do without

    api = "https://api.github.com" if host == GITHUB else f"https://{host}/api/v3"
    key = settings.github_app_key_file.read_text(encoding="utf-8")
    return GitHubApp(App(settings.github_app_id, key, settings.github_installation_id, host=host, api=api))


def _once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """The same thing is told by each of twenty sandboxes."""
    told: set[str] = set()

    def say(text: str) -> None:
        if text not in told:
            told.add(text)
            tell(text)

    return say
