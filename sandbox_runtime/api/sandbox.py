"""The interfaces: a runtime starts sandboxes, a sandbox is used and closed; and their errors, as a tree.

SandboxError
├── RuntimeUnavailable   this runtime cannot be used here; the message says what is missing and how to get it
├── EgressNotEnforced    this backend cannot enforce the spec's egress; nothing was started
├── EnvironmentMissing   the recipe's environment is not ready, and `start` builds none
├── SandboxNotReady      it was started and did not become ready; everything of it is freed. `stage`, `log_tail`
├── RuntimeThrottled     the runtime accepts no further sandbox for now. `retry_after_s`
└── SandboxGone          the sandbox has ended
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sandbox_runtime.api.spec import Command, PreparedEnvironment, Recipe, SandboxSpec


@dataclass(frozen=True)
class ServerEndpoint:
    """`url`: `http(s)://host:port`, or `http+unix://` with the socket's path percent-encoded; with or without `/rpc`.

    `token`: the server's own. `proxy_token`: of whoever stands before it and wants `Authorization` for itself; the
    server's token then travels in `X-Gepa-Token`.
    """

    url: str
    token: str = field(repr=False)
    proxy_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class ProcessEndpoint(ServerEndpoint):
    """One whose process is ours. `pid`: it leads a session of its own."""

    pid: int


LOG_BYTES = 256 * 1024
"""What `Sandbox.logs` keeps: the end of what was written."""

EXEC_BYTES = 4 * 2**20
"""What is kept of a command's stdout, and of its stderr: the end of each."""


class SandboxError(Exception):
    """Anything that went wrong with a sandbox; its text says what, where and what to do."""


class RuntimeUnavailable(SandboxError):
    """This runtime cannot be used here."""


class EgressNotEnforced(SandboxError):
    """This backend cannot enforce the spec's egress; it never starts something that reaches more instead."""


class EnvironmentMissing(SandboxError):
    """The recipe's environment is not ready; `Runtime.prepare` makes it."""


class SandboxNotReady(SandboxError):
    """It was started and did not become ready; nothing of it is left.

    `stage`: `create`, `setup` (a command of it failed), `way out` (the gateway is not reached), `main` (it
    ended) or `ready` (it took too long).
    """

    def __init__(self, message: str, *, stage: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.log_tail = log_tail


class RuntimeThrottled(SandboxError):
    """The runtime takes no more for now."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SandboxGone(SandboxError):
    """The sandbox has ended."""


@dataclass(frozen=True)
class SandboxExit:
    """How a sandbox ended.

    `exited`: its main command did, with `status` (128 + signal where that killed it). `timed_out`: its lifetime was
    over. `terminated`: by `close`, a sweep or somebody else. `lost`: nobody knows.
    """

    kind: Literal["exited", "timed_out", "terminated", "lost"]
    status: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class CommandResult:
    """What became of a command. `status`: 128 + signal where that killed it, None where it ran out of time."""

    status: int | None
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def timed_out(self) -> bool:
        """Whether it was ended because its time was over."""
        return self.status is None


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as `Runtime.found` lists it. `created`: seconds as of `time.time`.

    `orphan`: whoever started it is certainly gone; False where that cannot be told from here.
    """

    id: str
    labels: Mapping[str, str]
    created: float
    orphan: bool
    owner: str


class Sandbox(Protocol):
    """One that is up. Every method may be called at any time, also at the same time as others."""

    @property
    def id(self) -> str:
        """What the runtime calls it."""
        ...

    async def endpoint(self) -> ServerEndpoint:
        """Where its server answers; to be asked again when that refuses, as tokens may end. Raises `SandboxGone`."""
        ...

    async def exec(self, command: Command) -> CommandResult:
        """Run a command beside the server, until it ends or is killed after its `timeout_s`. Raises `SandboxGone`."""
        ...

    async def logs(self) -> str:
        """The end of what `setup` and `main` wrote, at most `LOG_BYTES`; also when it has ended."""
        ...

    async def wait(self) -> SandboxExit:
        """Until it has ended, however that comes."""
        ...

    async def close(self) -> None:
        """End it and free everything of it. Safe to call twice; a cancellation waits until it is done.

        Raises:
            SandboxError: not all of it could be freed; a sweep tries again.
        """
        ...


class Runtime(Protocol):
    """Starts sandboxes of one kind. Use it in an `async with` block, which ends those that were not closed."""

    @property
    def name(self) -> str:
        """`process`, `bubblewrap` or `modal`."""
        ...

    async def __aenter__(self) -> "Runtime":
        """Make ready. Raises `RuntimeUnavailable`."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """End every sandbox that was started and not closed.

        Raises:
            SandboxError: when all were tried: not all could be freed; how many, and what was in the way of the first.
        """
        ...

    async def prepare(
        self, recipe: Recipe, *, told: Callable[[str], None], afresh: bool = False
    ) -> PreparedEnvironment:
        """Have the recipe's environment ready, made at most once; `afresh`: made again in any case.

        `told` hears what is being done, where that takes long. Raises `SandboxError`.
        """
        ...

    async def start(self, spec: SandboxSpec) -> Sandbox:
        """Start one that is ready. Whatever else happens, a cancellation included, nothing of it is left.

        Raises:
            Unenforceable, NotPrepared, NotReady, Throttled, Unavailable: see each.
        """
        ...

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Every sandbox of this kind that has these labels, whoever started it."""
        ...

    async def sweep(self, labels: Mapping[str, str] | None = None, *, orphans_only: bool = True) -> list[str]:
        """End those among `found` that nobody owns any more, or all of them; their ids.

        Raises:
            SandboxError: when all were tried: some could not be ended; which, and why.
        """
        ...
