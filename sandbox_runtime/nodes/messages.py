"""What a run and the host of a node send each other over the WebSocket of the run.

The run sends calls and cancellations; the host answers each call once, with its result or its error, also if it is
cancelled, and sends the progress of long ones before. The host asks for connections to the run's gateway, each of which
the run makes to a port for them. Files are sent by `PUT`, before the calls that name them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import ConfigDict, TypeAdapter, with_config

from sandbox_runtime.api.sandbox import (
    CommandResult,
    EgressNotEnforced,
    EnvironmentMissing,
    RuntimeInterrupted,
    RuntimeThrottled,
    RuntimeUnavailable,
    SandboxError,
    SandboxExit,
    SandboxGone,
    SandboxInfo,
)
from sandbox_runtime.api.spec import Allow, Egress, PreparedEnvironment, Recipe, SandboxOptions
from sandbox_runtime.api.spec import Open as OpenEgress

CONTROL, FILES = "/control", "/files"
"""The paths of a host: the WebSocket of the run, and files by their digests."""

LARGEST = 192 * 2**20
"""Bytes of a message: the largest output of a command (`ARTIFACTS_BYTES`), and its stderr, in base64."""

HEARTBEAT_S, HOST_HEARTBEAT_S = 10.0, 60.0
"""Seconds without a message after which a side asks for a sign of life, which must come within half as long.

The host waits longer: the run reads earlier messages first.
"""

Port = Literal["models", "tunnel"]
"""What a connection to the gateway is for."""

PORTS: tuple[Port, ...] = get_args(Port)

_BASE64 = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


@with_config(_BASE64)
@dataclass(frozen=True)
class SentCommand:
    """A `Command`. `file`: the digest of the file with its input, which the host has; else `stdin` is all of it."""

    argv: tuple[str, ...]
    cwd: str
    timeout_s: float
    env: Mapping[str, str] = field(repr=False)
    stdin: bytes = field(default=b"", repr=False)
    file: str | None = None


@dataclass(frozen=True)
class Open:
    """Open the runtime of this kind, once. `version`: of the run's package; a host of another one refuses.

    `builds`: the variables of the gateway session of builds, which is named `BUILDS`; None without one.
    """

    kind: Literal["process", "bubblewrap", "docker"]
    version: str
    builds: Mapping[str, str] | None = field(repr=False)


BUILDS = "builds"


@with_config(_BASE64)
@dataclass(frozen=True)
class Prepare:
    """Make the environment of a recipe ready; `checkout`: the recipe's. Its result is a `PreparedEnvironment`."""

    recipe: Recipe
    checkout: tuple[SentCommand, ...]
    rebuild: bool


@with_config(_BASE64)
@dataclass(frozen=True)
class Begin:
    """Start a sandbox. Its result is the port of the node for its server.

    `options`: those of the spec but `egress`, which is to `hosts`, as of `egress_to`. `session`: its name from now on.
    `gateway`: the variables of its gateway session, None without one.
    """

    options: SandboxOptions
    hosts: tuple[str, ...]
    main: SentCommand
    prepared: PreparedEnvironment
    session: str
    gateway: Mapping[str, str] | None = field(repr=False)


@with_config(_BASE64)
@dataclass(frozen=True)
class Run:
    """Run a command; `limits`: bytes to keep of its stdout and its stderr, one for both together.

    Its result is a `CommandResult`.
    """

    session: str
    command: SentCommand
    limits: tuple[int, ...]


@with_config(_BASE64)
@dataclass(frozen=True)
class Serve:
    """Run the server until it ends. `token`: its own. Its result is a `SandboxExit`."""

    session: str
    main: SentCommand
    token: str = field(repr=False)


@dataclass(frozen=True)
class Stop:
    """End a sandbox and free it. `id`: its session, or the backend's for one that another host has left."""

    id: str


@dataclass(frozen=True)
class Found:
    """List the sandboxes of the node with these labels, as `SandboxInfo` with ids as of `Stop`."""

    labels: Mapping[str, str]


Asked = Open | Prepare | Begin | Run | Serve | Stop | Found
"""What a run asks of a host."""

RESULTS: Mapping[type[Any], TypeAdapter[Any]] = {
    Open: TypeAdapter(None),
    Prepare: TypeAdapter(PreparedEnvironment),
    Begin: TypeAdapter(int),
    Run: TypeAdapter(CommandResult),
    Serve: TypeAdapter(SandboxExit),
    Stop: TypeAdapter(None),
    Found: TypeAdapter(list[SandboxInfo]),
}
"""What a host answers, by what was asked."""

ASKED: Mapping[str, TypeAdapter[Any]] = {asked.__name__: TypeAdapter(asked) for asked in RESULTS}


@dataclass(frozen=True)
class Call:
    """A call of the run. `method`: a name in `ASKED`. `params`: JSON."""

    number: int
    method: str
    params: str = field(repr=False)


@dataclass(frozen=True)
class Cancel:
    """End a call; its answer follows in any case."""

    number: int


@dataclass(frozen=True)
class Failure:
    """An error: the name of its class, its text, and what `RuntimeThrottled` has besides."""

    type: str
    message: str
    retry_after_s: float = 0.0


@dataclass(frozen=True)
class Answer:
    """The answer to a call: its result, as JSON, or its failure."""

    number: int
    result: str = field(default="null", repr=False)
    failure: Failure | None = None


@dataclass(frozen=True)
class Progress:
    """What a call is at."""

    number: int
    text: str


@with_config(_BASE64)
@dataclass(frozen=True)
class Printed:
    """What a sandbox printed, as it was made or by its server; the end if it was much. `session`: of its `Begin`."""

    session: str
    data: bytes


@dataclass(frozen=True)
class Connect:
    """Connect to the gateway for a program of this session, and to the port `at`; join both.

    What is sent to the port begins with a line: the secret `name`.
    """

    session: str
    port: Port
    at: int
    name: str


def hosts_of(egress: Egress) -> tuple[str, ...]:
    """Return the hosts from which `egress_to` makes this egress."""
    match egress:
        case Allow(domains, cidrs):
            return (*domains, *cidrs)
        case _:
            return ("*",) if isinstance(egress, OpenEgress) else ()


FROM_RUN: TypeAdapter[Call | Cancel] = TypeAdapter(Call | Cancel)
FromHost = Answer | Progress | Printed | Connect
FROM_HOST: TypeAdapter[FromHost] = TypeAdapter(FromHost)

_ERRORS = (
    *(EgressNotEnforced, EnvironmentMissing, RuntimeInterrupted, RuntimeUnavailable, SandboxGone, SandboxError),
    ValueError,
)


def failure_of(error: Exception) -> Failure:
    """Return the failure that `error_of` turns into the same error again; an `OSError` into a `SandboxError`."""
    text = str(error) or type(error).__name__
    if isinstance(error, RuntimeThrottled):
        return Failure("RuntimeThrottled", text, error.retry_after_s)
    return Failure(next((each.__name__ for each in _ERRORS if isinstance(error, each)), "SandboxError"), text)


def error_of(failure: Failure) -> Exception:
    """Return the error of a failure."""
    if failure.type == "RuntimeThrottled":
        return RuntimeThrottled(failure.message, retry_after_s=failure.retry_after_s)
    return {each.__name__: each for each in _ERRORS}.get(failure.type, SandboxError)(failure.message)
