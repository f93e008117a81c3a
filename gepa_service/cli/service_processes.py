"""The processes of a service on one machine: start them, start those again that end, and end all of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ENDS_WITH_PARENT = Path(__file__).with_name("ends_with_parent.py")
POLL_S = 0.1
END_S = 30.0
"""Seconds that a process may take to end, before it is killed."""

RESTART_PAUSE_S = 1.0
MOST_ENDS, WITHIN_S = 3, 60.0
"""A process that ends by itself so often within so many seconds is not started again."""


@dataclass
class ServiceProcess:
    """A process of the service. `command`: begins with the path of a program. `inherited`: descriptors it gets."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    inherited: Sequence[int] = ()
    process: "subprocess.Popen[bytes] | None" = None
    ends: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Start it, in a session of its own, so that Ctrl-C at the terminal reaches the supervisor alone."""
        wrapped = [sys.executable, "-I", "-S", str(ENDS_WITH_PARENT), str(os.getpid()), *self.command]
        self.process = subprocess.Popen(  # noqa: S603  no shell
            wrapped,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            pass_fds=self.inherited,
            start_new_session=True,
        )

    def ended(self) -> int | None:
        """Return the exit status once it has ended."""
        return None if self.process is None else self.process.poll()


class PartFailed(Exception):
    """A process of the service ends again and again; the text names it and its exit status."""


class Supervisor:
    """Runs the parts, which start in their order and end in the reverse one. Used in the main thread.

    SIGTERM and SIGINT end all parts; a second signal kills them. `warn`: called with what happens to a part.
    """

    def __init__(self, parts: Sequence[ServiceProcess], warn: Callable[[str], None]) -> None:
        self._parts = parts
        self._warn = warn
        self._signals: list[int] = []

    def run(self, ready: Callable[[], bool], announce: Callable[[], None]) -> int:
        """Run the parts until a signal; return its number.

        `ready`: whether the service answers; then `announce` is called, once.

        Raises:
            PartFailed: a part ends by itself `MOST_ENDS` times within `WITHIN_S`, or before the service answered.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)
        try:
            for part in self._parts:
                part.start()
            announced = False
            while not self._signals:
                for part in self._parts:
                    self._look_at(part, announced)
                if not announced and ready():
                    announced = True
                    announce()
                time.sleep(POLL_S)
        finally:
            self._end()
        return self._signals[0]

    def _signalled(self, number: int, _frame: object) -> None:
        self._signals.append(number)

    def _look_at(self, part: ServiceProcess, announced: bool) -> None:
        status = part.ended()
        if status is None:
            return
        present = time.monotonic()
        part.ends = [at for at in part.ends if present - at < WITHIN_S] + [present]
        if not announced or len(part.ends) >= MOST_ENDS:
            raise PartFailed(f"the {part.name} ended with status {status}")
        self._warn(f"the {part.name} ended with status {status}; it is started again")
        time.sleep(RESTART_PAUSE_S)
        part.start()

    def _end(self) -> None:
        """End the parts one after the other: a dispatcher that hands back its work needs the API."""
        before = len(self._signals)
        for part in reversed(self._parts):
            process = part.process
            if process is None or process.poll() is not None:
                continue
            process.terminate()
            until = time.monotonic() + END_S
            while process.poll() is None and time.monotonic() < until and len(self._signals) <= before:
                time.sleep(POLL_S)
            if process.poll() is None:
                self._warn(f"the {part.name} was killed")
                process.kill()
                process.wait()
