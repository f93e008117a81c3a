"""A running work, as its attempt sees it; and the process of one optimization."""

import contextlib
import queue
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from evolverpc_common.redaction import Secrets
from gepa_service.jobs.work_order import MESSAGES, Message, OptimizeOrder, failed

TICK_S = 0.1


class RunningWork(ABC):
    """A work that a process does. Used by one attempt."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self.is_silent = False
        """Whether its last message was read: it has ended, or is about to."""

    def next(self) -> Message | None:
        """Return the next message, or None if there is none within a tick."""
        with contextlib.suppress(queue.Empty):
            message = self._messages.get(timeout=TICK_S)
            self.is_silent = message is None
            return message
        return None

    @abstractmethod
    def stop(self) -> None:
        """Ask it to stop."""

    @abstractmethod
    def end(self, patience_s: float, *, at_once: bool = False) -> None:
        """End it, by force after `patience_s`. `at_once`: calls in flight are given up; sandboxes are ended in time."""


class OptimizationProcess(RunningWork):
    """A process of `optimization_main`, a session of its own. What it prints is appended to `log`.

    `environment`: whole. `folder`: where it runs. `secrets`: are replaced in all that it reports.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path, log: IO[bytes], secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gepa_service.jobs.optimization_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None, "pipes"  # noqa: S101
        self._stdin = self._process.stdin
        threading.Thread(target=self._read, args=(self._process.stdout,), name=f"messages of {folder.name}").start()

    def begin(self, order: OptimizeOrder) -> None:
        """Send it the order."""
        with contextlib.suppress(BrokenPipeError):  # it has ended, which its output shows
            self._stdin.write(order.model_dump_json().encode() + b"\n")
            self._stdin.flush()

    def stop(self) -> None:
        """As of `RunningWork`."""
        self._process.send_signal(signal.SIGTERM)

    def end(self, patience_s: float, *, at_once: bool = False) -> None:
        """As of `RunningWork`."""
        if at_once and self._process.poll() is None:
            self.stop()
            time.sleep(TICK_S)
            self.stop()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def _read(self, lines: IO[bytes]) -> None:
        try:
            with lines:
                for line in lines:
                    self._messages.put(self._message(line))
        finally:
            self._messages.put(None)

    def _message(self, line: bytes) -> Message:
        try:
            return MESSAGES.validate_json(self._secrets.redact_json(line))
        except ValidationError as error:
            return failed("run", f"its process reported what cannot be read: {error.errors()[0]['msg']}")
