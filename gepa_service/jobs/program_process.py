"""The process that works on a program, as the worker that started it sees it."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from evolverpc_common.redaction import Secrets
from gepa_service.jobs.program_messages import MESSAGES, WorkFailed, WorkMessage, WorkOrder

SILENT_S = 0.5
"""Seconds without a message after which `ProgramProcess.messages` yields None."""

END_S = 90.0
"""Seconds that a process may take to end its sandboxes."""

LAST_MESSAGES_S = 1.0
"""Seconds that an ended process's last message may take to be read."""


class ProgramProcess:
    """A process of `program_main`, which is a session of its own.

    `environment`: whole. `folder`: where it runs. `secrets`: are replaced in all that it reports.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path, secrets: Secrets) -> None:
        self._secrets = secrets
        self._messages: queue.SimpleQueue[WorkMessage | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gepa_service.jobs.program_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )

    def begin(self, order: WorkOrder) -> None:
        """Send it the order."""
        assert self._process.stdin is not None and self._process.stdout is not None, "pipes"  # noqa: S101
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        with contextlib.suppress(BrokenPipeError):  # it has ended, which its output shows
            self._process.stdin.write(order.model_dump_json().encode() + b"\n")
            self._process.stdin.close()

    def messages(self) -> Iterator[WorkMessage | None]:
        """Yield what it reports, and None if it is silent, until it has ended."""
        while (message := self._next(SILENT_S)) is not None or self._process.poll() is None:
            yield message

    def end(self) -> list[WorkMessage]:
        """End it, which ends its sandboxes, or kill it if that takes too long; return its last messages, once."""
        if self._process.stdout is None or self._process.stdout.closed:
            return []
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        last = []
        while (message := self._next(LAST_MESSAGES_S)) is not None:
            last.append(message)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return last

    def _read(self, lines: IO[bytes]) -> None:
        with contextlib.suppress(ValueError):  # closed
            for line in lines:
                try:
                    self._messages.put(MESSAGES.validate_json(self._secrets.redact_json(line)))
                except ValidationError:
                    self._messages.put(WorkFailed(message="the process printed what is no message"))
        self._messages.put(None)

    def _next(self, seconds: float) -> WorkMessage | None:
        """Return the next message; None if there was none in this time, and after the last one."""
        try:
            return self._messages.get(timeout=seconds)
        except queue.Empty:
            return None
