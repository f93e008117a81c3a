"""What a command knows of its servers' sandboxes: an interface that needs nothing of `sandbox_runtime`."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gepa_client.journal.run_events import Event
from gepa_client.run.control_messages import ControlMessage, GatewayMessage
from gepa_client.settings.run_config import RunConfig

RUN_LABEL = "run"
"""The label of a sandbox that holds the id of its run."""

LABEL_LENGTH = 63
SWEEP = "evolverpc sandboxes --sweep"


@dataclass(frozen=True)
class Log:
    """A line for the user, as plain text."""

    text: str
    is_warning: bool = False


Show = Callable[[Log], None]


class Driver(Protocol):
    """The driver process, as a session of sandboxes uses it; safe to call from any thread."""

    def send(self, message: ControlMessage) -> None:
        """Send a message."""
        ...

    def stop(self, reason: str | None = None) -> None:
        """Stop the run; examples in flight are completed."""
        ...


class NoSandboxes:
    """The session of a command whose servers run elsewhere: there is nothing to start, to forward or to end."""

    def __init__(self, settings: RunConfig) -> None:
        self.settings = settings

    @property
    def has_gateway(self) -> bool:
        """Whether models are called through a gateway, which counts what the calls cost."""
        return False

    def displayed(self, event: Event) -> Event | None:
        """Return the event as it is displayed: sandboxes by name; None if the session reports it in other words."""
        return event

    @contextlib.contextmanager
    def reporting_to(self, _driver: Driver) -> Iterator[None]:
        """Forward model calls to the driver as they end, while the block runs."""
        yield

    def check_findings(self) -> list[Log]:
        """Return what the sandboxes add to the findings of a check: the spend cap, and refused connections."""
        return []

    def collect_artifacts(self, endpoint: str, folder: Path) -> list[Log]:  # noqa: ARG002  nothing is there to copy
        """Copy the program's artifacts from the sandbox of an endpoint; return what to report."""
        return []

    def write_connections(self, file: Path) -> None:
        """Append the connections of ended sandboxes to a file of JSON lines, unless there was none."""

    def end(self) -> list[GatewayMessage]:
        """End the sandboxes before the block does; return the calls and refusals that no driver has received."""
        return []

    def forward(self, driver: Driver, show: Show) -> None:
        """Forward everything that happened since the last call of this method."""

    def observe(self, event: Event) -> None:
        """Take an event of the run into account."""
