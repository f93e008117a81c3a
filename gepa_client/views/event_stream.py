"""The events of a run for the process that started the command, on a file descriptor of its own."""

import os
import signal
from collections.abc import Mapping
from typing import Any

import orjson

from gepa_client.journal.run_events import Event, Finished


class EventStream:
    """Writes events and the summary as JSON lines to `descriptor`; None writes nothing.

    If the reader has closed it before the run has ended, this process gets a SIGTERM: the process that started the run
    is gone, and its program with it.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def event(self, event: Event) -> None:
        """Write an event."""
        if self._descriptor is None or self._write(event.model_dump_json().encode()):
            return
        if not isinstance(event, Finished):
            signal.raise_signal(signal.SIGTERM)

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Write the last line, as `--json` prints it."""
        if self._descriptor is not None:
            self._write(orjson.dumps(summary))

    def resumed_by(self, run_id: str) -> str | None:
        """Return what continues the run, None for a command."""
        return None if self._descriptor is None else f"the program that started it, with `resume` {run_id}"

    def _write(self, line: bytes) -> bool:
        """Return whether there is a reader; without one nothing more is written."""
        left = memoryview(line + b"\n")
        try:
            while left and self._descriptor is not None:
                left = left[os.write(self._descriptor, left) :]
        except (BrokenPipeError, ConnectionResetError):
            self._descriptor = None
        return self._descriptor is not None
