"""What a sandbox is to be: everything a runtime needs to know to start one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from sandbox_runtime.api.egress import Closed, Egress
from sandbox_runtime.api.gateway_session import Passage
from sandbox_runtime.api.recipe import Prepared

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
    """One sandbox.

    `main`: the server, started when every command of `setup` has ended well, one after the other; its `timeout_s`
    and `stdin` mean nothing. It listens where `GEPA_LISTEN` says (`fd:3`, or `HOST:PORT`), expects `GEPA_TOKEN`, and is
    ready when `GET /health` answers 200. `GEPA_MEMORY_MB` is the memory that it may use.

    `prepared`: the environment, of the runtime that starts it. `egress`: what it may reach besides `way_out`, which is
    also who enforces it where the sandbox has no network of its own. `env`: variables of every command; `secrets`: the
    same, never shown or written down. `labels`: how it is found again: `[a-z0-9-]` keys, values of up to 63 characters.

    Bounds, of which each runtime's own text says what it holds to: `cpu` in cores; `memory_mb`; `workspace_mb`, what it
    may write; `processes` at once; `lifetime_s` from its start, after which it is ended; `ready_s` for all of `setup`
    and `main` to be ready.

    Raises:
        ValueError: `env` or `secrets` has one of `OWN_VARIABLES`.
    """

    main: Command
    prepared: Prepared
    setup: tuple[Command, ...] = ()
    egress: Egress = Closed()  # noqa: RUF009  a frozen value
    way_out: Passage | None = field(default=None, repr=False)
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
