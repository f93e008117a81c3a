"""The interface of a backend: eight methods, in two classes. `runtime` does everything else for all backends."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from evolverpc_common.output_tail import OutputTail
from sandbox_runtime.api.sandbox import SandboxExit, SandboxInfo, ServerEndpoint
from sandbox_runtime.api.spec import Command, PreparedEnvironment, Recipe, SandboxSpec


class StartedSandbox(Protocol):
    """A sandbox of a backend, which runs commands and one server until `Backend.stop` ends it."""

    @property
    def id(self) -> str:
        """The name that its backend gives it."""
        ...

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        """Run a command, and end everything that it started, also if this is cancelled.

        Return its status, 128 + signal if a signal ended it, None if it took too long. `stderr` None: it is written to
        `stdout`.

        Raises:
            SandboxGone: the sandbox has ended. SandboxError: another failure. OSError: its input cannot be read.
        """
        ...

    async def serve(self, main: Command, endpoint: ServerEndpoint) -> SandboxExit:
        """Start this command of the spec as the server of this endpoint, and wait until it or the sandbox has ended.

        Its output goes to the log that the sandbox was started with.

        Raises:
            SandboxError, OSError: it cannot be started.
        """
        ...

    async def endpoint(self, token: str) -> ServerEndpoint:
        """Return the address of its server, started or not, whose own token this is. Raises `SandboxError`."""
        ...


class Backend(Protocol):
    """Starts sandboxes of one kind."""

    @property
    def name(self) -> str:
        """`process`, `bubblewrap`, `docker` or `modal`."""
        ...

    async def open(self) -> None:
        """Examine whether it can be used, before `prepare` and `start`. Raises `RuntimeUnavailable`."""
        ...

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        """See `Runtime.prepare`."""
        ...

    async def start(self, spec: SandboxSpec, log: OutputTail) -> StartedSandbox:
        """Start a sandbox in which nothing runs yet. Nothing of it is left on any failure or cancellation.

        `log`: gets what its server prints, and what is printed while it is made.

        Raises:
            EgressNotEnforced, EnvironmentMissing, RuntimeThrottled, RuntimeUnavailable: see each.
            SandboxError, OSError: it cannot be made.
            ValueError: a label is not as `SandboxSpec.labels` requires.
        """
        ...

    async def stop(self, id_: str) -> None:
        """End everything of a sandbox and free it, also one of another process, or one that has ended.

        A cancellation waits until it is done.

        Raises:
            SandboxError, OSError: something of it is left; call it again to retry.
        """
        ...

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Return every sandbox of this kind that has these labels, of any process."""
        ...
