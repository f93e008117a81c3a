"""The interfaces: a runtime starts sandboxes, a sandbox is used and closed; and what can go wrong, as a tree.

SandboxError
├── Unavailable      this runtime cannot be used here: what is missing, and how to get it
├── Unenforceable    this backend cannot enforce the spec's egress; nothing was started
├── NotPrepared      the recipe's environment is not ready, and `start` builds none
├── NotReady         it was started and did not become ready; everything of it is freed. `stage`, `log_tail`
├── Throttled        the runtime takes no more for now. `retry_after_s`
└── Gone             the sandbox has ended: nothing can be asked of it any more
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sandbox_runtime.api.endpoint import Endpoint
from sandbox_runtime.api.recipe import Prepared, Recipe
from sandbox_runtime.api.spec import Command, SandboxSpec

LOG_BYTES = 256 * 1024
"""What `Sandbox.logs` keeps: the end of what was written."""

EXEC_BYTES = 4 * 2**20
"""What is kept of a command's stdout, and of its stderr: the end of each."""


class SandboxError(Exception):
    """Anything that went wrong with a sandbox; its text says what, where and what to do."""


class Unavailable(SandboxError):
    """This runtime cannot be used here."""


class Unenforceable(SandboxError):
    """This backend cannot enforce the spec's egress; it never starts something that reaches more instead."""


class NotPrepared(SandboxError):
    """The recipe's environment is not ready; `Runtime.prepare` makes it."""


class NotReady(SandboxError):
    """It was started and did not become ready; nothing of it is left.

    `stage`: `create`, `setup` (a command of it failed), `way out` (the gateway is not reached), `main` (it
    ended) or `ready` (it took too long).
    """

    def __init__(self, message: str, *, stage: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.log_tail = log_tail


class Throttled(SandboxError):
    """The runtime takes no more for now."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Gone(SandboxError):
    """The sandbox has ended."""


@dataclass(frozen=True)
class Ended:
    """How a sandbox ended.

    `exited`: its main command did, with `status` (128 + signal where that killed it). `timed_out`: its lifetime was
    over. `terminated`: by `close`, a sweep or somebody else. `lost`: nobody knows.
    """

    kind: Literal["exited", "timed_out", "terminated", "lost"]
    status: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class Executed:
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
class Found:
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

    async def endpoint(self) -> Endpoint:
        """Where its server answers; to be asked again when that refuses, as tokens may end. Raises `Gone`."""
        ...

    async def exec(self, command: Command) -> Executed:
        """Run a command beside the server, to its end or its `timeout_s`: then all of it is ended. Raises `Gone`."""
        ...

    async def logs(self) -> str:
        """The end of what `setup` and `main` wrote, at most `LOG_BYTES`; also when it has ended."""
        ...

    async def wait(self) -> Ended:
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
        """Make ready. Raises `Unavailable`."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """End every sandbox that was started and not closed.

        Raises:
            SandboxError: when all were tried: not all could be freed; how many, and what was in the way of the first.
        """
        ...

    async def prepare(self, recipe: Recipe, *, told: Callable[[str], None], afresh: bool = False) -> Prepared:
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

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[Found]:
        """Every sandbox of this kind that has these labels, whoever started it."""
        ...

    async def sweep(self, labels: Mapping[str, str] | None = None, *, orphans_only: bool = True) -> list[str]:
        """End those among `found` that nobody owns any more, or all of them; their ids.

        Raises:
            SandboxError: when all were tried: some could not be ended; which, and why.
        """
        ...
