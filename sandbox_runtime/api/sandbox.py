"""What a sandbox gives and how it ends, and the errors of sandboxes, as a tree.

SandboxError
├── RuntimeUnavailable   this runtime cannot be used here; the message names what is missing and how to get it
├── EgressNotEnforced    this backend cannot enforce the spec's egress; nothing was started
├── EnvironmentMissing   the recipe's environment is not ready, and `start` builds none
├── RuntimeInterrupted   a process that makes environments or sandboxes was killed; another try may succeed
├── SandboxNotReady      it was started and did not become ready; everything of it is freed. `stage`, `log_tail`
├── RuntimeThrottled     the runtime accepts no further sandbox for now. `retry_after_s`
└── SandboxGone          the sandbox has ended
    └── NodeLost         its node is lost, see `nodes.node`; a `RuntimeThrottled` too
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import ConfigDict, with_config


@dataclass(frozen=True)
class ServerEndpoint:
    """The address of a server.

    `url`: `http(s)://host:port`, or `http+unix://` with a percent-encoded path; `/rpc` may follow. `token`: the
    server's own. `proxy_token`: of a proxy in front of it that reads `Authorization`; the server's token then travels
    in `X-Gepa-Token`.
    """

    url: str
    token: str = field(repr=False)
    proxy_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class ProcessEndpoint(ServerEndpoint):
    """A server that is a process of this machine. `pid`: it leads a session of its own."""

    pid: int


LOG_BYTES = 256 * 1024
"""How many bytes `Sandbox.logs` keeps: the end of the output."""

EXEC_BYTES = 4 * 2**20
"""How many bytes are kept of a command's stdout, and of its stderr: the end of each."""


class SandboxError(Exception):
    """A failure of a sandbox; the text names what failed, where and what to do."""


class RuntimeUnavailable(SandboxError):
    """This runtime cannot be used here."""


class EgressNotEnforced(SandboxError):
    """This backend cannot enforce the spec's egress; it never starts a sandbox that reaches more instead."""


class EnvironmentMissing(SandboxError):
    """The recipe's environment is not ready; `Runtime.prepare` makes it."""


class RuntimeInterrupted(SandboxError):
    """A process that makes environments or sandboxes was killed; the same request may succeed later."""


class SandboxNotReady(SandboxError):
    """The sandbox did not become ready; nothing of it is left.

    `stage`: `create`, `setup` (a command failed), `gateway` (it is not reached), `main` (the server ended) or
    `ready` (it took too long).
    """

    def __init__(self, message: str, *, stage: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.log_tail = log_tail


class RuntimeThrottled(SandboxError):
    """The runtime accepts no further sandbox for now."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SandboxGone(SandboxError):
    """The sandbox has ended."""


@dataclass(frozen=True)
class SandboxExit:
    """How a sandbox ended.

    `exited`: its server did, with `status` (128 + signal if a signal ended it). `timed_out`: its lifetime was over.
    `terminated`: by `close`, a sweep or from outside. `lost`: unknown.
    """

    kind: Literal["exited", "timed_out", "terminated", "lost"]
    status: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        words = {
            "exited": "its server ended" + ("" if self.status is None else f" with status {self.status}"),
            "timed_out": "its time was over",
            "terminated": "it was ended",
            "lost": "it is lost",
        }[self.kind]
        return f"{words}: {self.detail}" if self.detail else words


@with_config(ConfigDict(ser_json_bytes="base64", val_json_bytes="base64"))
@dataclass(frozen=True)
class CommandResult:
    """The result of a command. `status`: 128 + signal if a signal ended it, None if it timed out."""

    status: int | None
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def timed_out(self) -> bool:
        """Whether it was ended because it took too long."""
        return self.status is None


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as `Runtime.found` lists it. `created`: seconds as of `time.time`.

    `orphan`: the process that started it has certainly ended; False if that cannot be known from here.
    """

    id: str
    labels: Mapping[str, str]
    created: float
    orphan: bool
    owner: str


class RunningSandbox(Protocol):
    """A sandbox whose server is up. Every method may be called at any time, also concurrently."""

    @property
    def id(self) -> str:
        """The name that the runtime gives it."""
        ...

    async def endpoint(self) -> ServerEndpoint:
        """Return the address of its server; ask again if that refuses, as tokens expire. Raises `SandboxGone`."""
        ...

    async def wait(self) -> SandboxExit:
        """Wait until it has ended."""
        ...

    async def close(self) -> None:
        """End it and free everything of it. Safe to call twice; a cancellation waits until it is done.

        Raises:
            SandboxError: not all of it could be freed; a sweep tries again.
        """
        ...
