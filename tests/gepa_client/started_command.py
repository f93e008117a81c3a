"""`evolverpc` as a fork that is left running, with the methods of `subprocess.Popen` that its tests need."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.forked_client import COMMAND, ForkedProcess, ForkServer


class StartedCommand(ForkedProcess):
    """Its outputs are read as text, while it runs or once it has ended. `further`: its descriptors from 3 on."""

    def __init__(
        self,
        server: ForkServer,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        further: Sequence[int] = (),
        module: str = COMMAND,
    ) -> None:
        from_stdout, stdout = os.pipe()
        from_stderr, stderr = os.pipe()
        with open(os.devnull) as stdin:  # noqa: PTH123  a descriptor is needed
            streams = (stdin.fileno(), stdout, stderr, *further)
            super().__init__(
                server.address, module, arguments, folder=str(folder), environment=environment, streams=streams
            )
        os.close(stdout)
        os.close(stderr)
        self.lines = os.fdopen(from_stdout)
        self.errors = os.fdopen(from_stderr)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for its end; return what of its stdout and stderr has not been read."""
        self.wait(timeout)
        with self.lines, self.errors:
            return self.lines.read(), self.errors.read()

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing if it has ended."""
        self._signal(number)
