"""The interface of a sandbox of a backend. `runtime` does everything else for all backends."""

from typing import Protocol

from evolverpc_common.output_tail import OutputTail
from sandbox_runtime.api.sandbox import SandboxExit, ServerEndpoint
from sandbox_runtime.api.spec import Command


class StartedSandbox(Protocol):
    """A sandbox of a backend, which runs commands and one server until `Runtime.stop` ends it."""

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
