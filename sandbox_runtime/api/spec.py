"""Describe a sandbox: its environment, its limits, what it may connect to, and everything needed to start it."""

import hashlib
import io
import ipaddress
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from pydantic import ConfigDict, with_config

from evolverpc_common.build_cache import BuiltEnvironment
from evolverpc_common.node_package_managers import NodeInstall
from evolverpc_common.python_package_managers import PythonInstall

_DOMAIN = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.IGNORECASE)


@dataclass(frozen=True)
class Closed:
    """Nothing but the gateway, if the sandbox has a `GatewaySession`."""


@dataclass(frozen=True)
class Allow:
    """These hosts and no others.

    `domains`: names, or `*.name` for everything below one. The backend or the gateway resolves them; an address that is
    not public is allowed only if one of `cidrs` contains it. `cidrs`: networks, `192.0.2.0/24`, or addresses.

    Raises:
        ValueError: an entry is neither.
    """

    domains: tuple[str, ...] = ()
    cidrs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for domain in self.domains:
            if not _DOMAIN.fullmatch(domain):
                raise ValueError(f"{domain!r} is not the name of a host: write `example.com` or `*.example.com`")
        for cidr in self.cidrs:
            try:
                ipaddress.ip_network(cidr)
            except ValueError as error:
                raise ValueError(f"{cidr!r} is not a network: {error}") from None


@dataclass(frozen=True)
class Open:
    """Every host."""


Egress = Closed | Allow | Open


def egress_to(hosts: tuple[str, ...]) -> Egress:
    """Return the egress for a list of hosts: empty is `Closed`, `*` is `Open`, others are names of hosts and networks.

    Raises:
        ValueError: `*` is not alone, or an entry is neither a name nor a network.
    """
    if not hosts:
        return Closed()
    if "*" in hosts:
        if len(hosts) > 1:
            raise ValueError("`*` allows every host: leave the others out")
        return Open()
    cidrs = tuple(host for host in hosts if _is_network(host))
    return Allow(tuple(host for host in hosts if host not in cidrs), cidrs)


def _is_network(host: str) -> bool:
    try:
        ipaddress.ip_network(host)
    except ValueError:
        return "/" in host  # then `Allow` raises the error
    return True


MODELS_PORT = 8181
"""The loopback port of the gateway's models in a sandbox that has a network of its own."""

TUNNEL_PORT = 8182
"""The loopback port of the gateway's proxy (`CONNECT`) in such a sandbox."""

AUTHORITY = "GATEWAY_AUTHORITY"
"""The variable with a certificate, in PEM: of the authority that the gateway itself is for some hosts."""


class GatewaySession(Protocol):
    """What one sandbox may use of the gateway, until it is closed. Its token is of no use to others."""

    @property
    def models_url(self) -> str | None:
        """The address of the gateway's models; None if only the sockets given to `serve` reach it."""
        ...

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        """Answer on these sockets too, which listen on the sandbox's own loopback; the gateway then owns them."""
        ...

    def env(self, models_url: str, tunnel_url: str | None) -> Mapping[str, str]:
        """Return the variables by which programs find it at these addresses: `OPENAI_BASE_URL`, `HTTPS_PROXY`, ...

        `tunnel_url`: None for programs that use no proxy.
        """
        ...

    async def close(self) -> None:
        """Answer nothing more, and end running requests. Safe to call twice."""
        ...


@with_config(ConfigDict(ser_json_bytes="base64", val_json_bytes="base64"))
@dataclass(frozen=True)
class Recipe:
    """What the program's manifests ask to install, for Python, Node or both.

    `python`: the required version (`3.12`, `>=3.10`), None if the program needs no Python. `node`: the same for Node.
    `install`, `node_install`: the tools that install the program, in a checkout that the commands of `checkout` make;
    `origin`: the address of its repository, whose build scripts may have run, so that no other gets the environment.
    `packages`: further Python packages, as pip accepts them.
    """

    python: str | None = None
    node: str | None = None
    packages: tuple[str, ...] = ()
    install: PythonInstall | None = None
    node_install: NodeInstall | None = None
    origin: str = ""
    checkout: "tuple[Command, ...]" = field(default=(), compare=False, repr=False)

    @property
    def digest(self) -> str:
        """Return 24 hex digits that change with any part of it."""
        described = (self.python, self.node, self.packages, self.install, self.node_install, self.origin)
        return hashlib.sha256(repr(described).encode()).hexdigest()[:24]


@dataclass(frozen=True, kw_only=True)
class PreparedEnvironment(BuiltEnvironment):
    """A recipe's environment in one runtime, for use by that runtime alone.

    `server`: the command that starts `evolverpc serve` there. `image`: the runtime's name for it, if it is not a
    folder; then the other paths are those in it. `mounts` may begin with those of the server.
    """

    recipe: Recipe
    server: tuple[str, ...]
    image: str | None = None

    def variables(self, workspace: str, system_path: str) -> dict[str, str]:
        """Return the variables of every command in a sandbox with this workspace; `system_path`: the end of `PATH`."""
        return {
            "PATH": ":".join((f"{workspace}/bin", *self.path, system_path)),
            "HOME": f"{workspace}/home",
            "TMPDIR": f"{workspace}/tmp",  # noqa: S108  of the sandbox
            "LANG": "C.UTF-8",
            **self.env,
        }


STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

MEMORY_VARIABLE = "GEPA_MEMORY_MB"
"""The variable that states the sandbox's memory in MiB to the server, which derives its own limits from it."""

PYTHON_VARIABLE = "GEPA_PROGRAM_PYTHON"
"""The variable that names the program's interpreter to the server, for a program that needs one."""

OWN_VARIABLES = frozenset({"PATH", "HOME", "TMPDIR"})
"""Variables that only the runtime sets, for every command: they name folders of the sandbox."""


@dataclass(frozen=True)
class ResourceLimits:
    """What one sandbox may use. Each runtime documents which of these it enforces.

    `cpu`: cores. `memory_mb`: memory of all its processes, with the files that they write to memory, in MiB.
    `workspace_mb`: what it may write, in MiB. `processes`: how many may run at once. `lifetime_s`: seconds from its
    start, after which it is ended.
    """

    cpu: float = 1.0
    memory_mb: int = 2048
    workspace_mb: int = 1024
    processes: int = 512
    lifetime_s: float = 4 * 3600.0


@dataclass(frozen=True)
class Command:
    """A command in a sandbox. `cwd`: relative to the workspace. `stdin`: all of its input, or the file that holds it.

    `env`: variables for this command, never shown because they may hold secrets.

    Raises:
        ValueError: `cwd` is absolute or contains `..`.
    """

    argv: tuple[str, ...]
    cwd: str = "."
    stdin: bytes | Path = field(default=b"", repr=False)
    timeout_s: float = 60.0
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        folder = PurePosixPath(self.cwd)
        if folder.is_absolute() or ".." in folder.parts:
            raise ValueError(f"{self.cwd!r} is not a folder of the workspace: it must be relative, and without '..'")

    def open_input(self) -> IO[bytes]:
        """Open its input. Raises `OSError` if its file cannot be read."""
        return self.stdin.open("rb") if isinstance(self.stdin, Path) else io.BytesIO(self.stdin)

    def write_input(self, file: Path) -> None:
        """Write its input to a file. Blocks."""
        with self.open_input() as source, file.open("wb") as target:
            shutil.copyfileobj(source, target)


@dataclass(frozen=True, kw_only=True)
class SandboxOptions:
    """What a sandbox may use and is given, for any program.

    `egress`: what the sandbox may connect to besides the gateway. `env`: variables of every command. `secrets`: the
    same, never shown or written down. `labels`: how it is found again: keys of `[a-z0-9-]`, values of up to 63
    characters. `limits`: what it may use. `ready_s`: the time within which its setup must have run and its server must
    be ready.

    Raises:
        ValueError: `env` or `secrets` has one of `OWN_VARIABLES`.
    """

    egress: Egress = Closed()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: ResourceLimits = ResourceLimits()
    ready_s: float = 120.0

    def __post_init__(self) -> None:
        taken = sorted(OWN_VARIABLES.intersection({*self.env, *self.secrets}))
        if taken:
            raise ValueError(
                f"{', '.join(taken)} cannot be set for a sandbox: they name its own folders. Put executables into bin/"
                " of the workspace, or set a variable in the command that needs it"
            )


@dataclass(frozen=True, kw_only=True)
class SandboxSpec(SandboxOptions):
    """Everything that a runtime needs to start one sandbox; see `SandboxOptions`.

    `main`: the server, started after every command of `setup` has succeeded in turn; its `timeout_s` and `stdin` are
    not used. It listens at `GEPA_LISTEN` (`fd:3`, or `HOST:PORT`), expects `GEPA_TOKEN`, and is ready when
    `GET /health` answers 200. `GEPA_MEMORY_MB` is the memory that it may use.

    `prepared`: the environment, from the same runtime. `gateway_session`: its session at the gateway, which enforces
    `egress` if the sandbox has no network of its own.
    """

    main: Command
    prepared: PreparedEnvironment
    setup: tuple[Command, ...] = ()
    gateway_session: GatewaySession | None = field(default=None, repr=False)
