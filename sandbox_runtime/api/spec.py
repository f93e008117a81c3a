"""Describe a sandbox: the environment of its program, its resource limits, and everything needed to start it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from sandbox_runtime.api.egress import Closed, Egress, GatewaySession


@dataclass(frozen=True)
class Recipe:
    """The environment of one program, for its Python or its Node.

    `python`: what its version must be (`3.12`, `>=3.10`), None where the program needs none. `node`: the same for Node.
    `files`: manifests and locks by their names in one folder: `requirements.txt`, `pyproject.toml`, `uv.lock`,
    `package.json`, `package-lock.json`, `.npmrc`. `packages`: further packages for its Python, as pip takes them.
    """

    python: str | None = None
    node: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    packages: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """24 hex digits that change with anything in it."""
        told = hashlib.sha256(repr((self.python, self.node, self.packages)).encode())
        for name, content in sorted(self.files.items()):
            told.update(f"{name} {len(content)}\n".encode())
            told.update(content)
        return told.hexdigest()[:24]


@dataclass(frozen=True)
class PreparedEnvironment:
    """A recipe's environment as one runtime has it, for use by that runtime alone.

    `server`: the command that starts `gepa-server` there. `python`: the program's interpreter there, None where it has
    no Python. `path`: folders to be first on `PATH`. `mounts`: folders of this machine to be seen read-only at the same
    path, where the runtime mounts any. `image`: what the runtime calls it, where that is not a folder. `env`: variables
    that the environment needs.
    """

    recipe: Recipe
    server: tuple[str, ...]
    python: str | None = None
    path: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


WORKSPACE_MB = 1024
MEMORY_MB = 2048
PROCESSES = 512
LIFETIME_S = 4 * 3600.0
READY_S = 120.0

MEMORY_VARIABLE = "GEPA_MEMORY_MB"
"""Gives the server the sandbox's memory in MiB, from which it derives how much it keeps."""

OWN_VARIABLES = frozenset({"PATH", "HOME", "TMPDIR"})
"""Those that a runtime alone sets for every command: they name folders of the sandbox."""


@dataclass(frozen=True)
class Command:
    """A command in a sandbox. `cwd`: relative to the workspace. `stdin`: all of its input, or the file that holds it.

    `env`: for this command alone, and never shown: it may hold secrets.

    Raises:
        ValueError: `cwd` is absolute or has `..` in it.
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


@dataclass(frozen=True)
class SandboxSpec:
    """Everything that a runtime needs to start one sandbox.

    `main`: the server, started after every command of `setup` has succeeded in turn; its `timeout_s` and `stdin` are
    not used. It listens at `GEPA_LISTEN` (`fd:3`, or `HOST:PORT`), expects `GEPA_TOKEN`, and is ready when
    `GET /health` answers 200. `GEPA_MEMORY_MB` is the memory that it may use.

    `prepared`: the environment, from the same runtime. `egress`: what the sandbox may connect to besides the gateway.
    `gateway_session`: its session at the gateway, which enforces `egress` if the sandbox has no network of its own.
    `env`: variables of every command. `secrets`: the same, never shown or written down. `labels`: how it is found
    again: keys of `[a-z0-9-]`, values of up to 63 characters.

    Each runtime documents which limits it enforces: `cpu` in cores; `memory_mb`; `workspace_mb`, the disk space that
    it may write; `processes` at once; `lifetime_s` from its start, after which it is ended. `ready_s`: the time within
    which `setup` must have run and `main` must be ready.

    Raises:
        ValueError: `env` or `secrets` has one of `OWN_VARIABLES`.
    """

    main: Command
    prepared: PreparedEnvironment
    setup: tuple[Command, ...] = ()
    egress: Egress = Closed()  # noqa: RUF009  a frozen value
    gateway_session: GatewaySession | None = field(default=None, repr=False)
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu: float = 1.0
    memory_mb: int = MEMORY_MB
    workspace_mb: int = WORKSPACE_MB
    processes: int = PROCESSES
    lifetime_s: float = LIFETIME_S
    ready_s: float = READY_S

    def __post_init__(self) -> None:
        taken = sorted(OWN_VARIABLES.intersection({*self.env, *self.secrets}))
        if taken:
            raise ValueError(
                f"{', '.join(taken)} cannot be set for a sandbox: they name its own folders. Put executables into bin/"
                " of the workspace, or set a variable in the command that needs it"
            )
