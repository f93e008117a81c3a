"""The supervisor's side of the driver process: start it, receive its events, and stop it without losing results."""

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Protocol, Self

from pydantic import BaseModel, ValidationError

from evolverpc_common.display_text import plain
from gepa_client.journal.run_events import Event, from_json
from gepa_client.run.control_messages import ControlMessage, DriverJob, StopMessage
from gepa_client.settings.run_config import RunConfig

HASH_SEED = "0"
TAIL_BYTES = 8192
TAIL_LINES = 5
TAIL_COLUMNS = 160
END_TIMEOUT_S = 10.0
"""Seconds the process may take to end after its last event, or after its stdin was closed."""


DRIVER = (sys.executable, "-P", "-m", "gepa_client.run.driver_main")
"""The command of the driver process."""


class LaunchedDriver(Protocol):
    """A driver process that was launched, as `subprocess.Popen` is one. Its `stdin` and `stdout` are pipes."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    returncode: int

    def kill(self) -> None:
        """Kill it."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status. Raises `subprocess.TimeoutExpired`."""
        ...


LaunchDriver = Callable[[str, IO[bytes], Sequence[int]], LaunchedDriver]
"""Launches `DRIVER` with a hash seed; it appends what it prints to the file and inherits the descriptors."""


def launch_here(hash_seed: str, printed: IO[bytes] | int, inherited: Sequence[int], *arguments: str) -> LaunchedDriver:
    """Launch the driver as an ordinary process with this process's environment. `printed`: as `stderr` of `Popen`."""
    process: LaunchedDriver = subprocess.Popen(  # noqa: S603  our own command
        [*DRIVER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=printed,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        start_new_session=True,
        pass_fds=inherited,
    )
    return process


@contextlib.contextmanager
def launched_ahead(config: RunConfig) -> Iterator[LaunchDriver]:
    """Launch the driver process of a run that may follow in the block, if that calls a model: loading takes seconds.

    Yield what hands it over, as `launch_here` does for a process that it launches then. It is killed if it is not used.
    """
    if config.reflection_lm is None:
        yield launch_here
        return
    ours, its = socket.socketpair()
    with ours:
        with its:
            process = launch_here(HASH_SEED, subprocess.DEVNULL, [its.fileno()], str(its.fileno()))
        is_taken = False

        def take(hash_seed: str, log: IO[bytes], inherited: Sequence[int]) -> LaunchedDriver:
            nonlocal is_taken
            if hash_seed != HASH_SEED:
                return launch_here(hash_seed, log, inherited)
            try:
                socket.send_fds(ours, [b"1"], [log.fileno(), *inherited])
            except OSError:  # it has ended: another one does too, and its log has why
                return launch_here(hash_seed, log, inherited)
            is_taken = True
            return process

        try:
            yield take
        finally:
            if not is_taken:
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    assert pipe is not None  # noqa: S101  they are pipes
                    pipe.close()


class DriverProcess:
    """One run in a process and a session of its own, so that Ctrl-C reaches it through `stop` alone.

    Leaving the `with` block ends the process. `log`: the file to which everything it prints is appended. `hash_seed`:
    the one that a recorded run was recorded with. `launch`: starts the process.
    """

    def __init__(
        self, job: DriverJob, log: Path, hash_seed: str = HASH_SEED, launch: LaunchDriver = launch_here
    ) -> None:
        self._log_path = log
        terminal = [] if job.if_blocked is None else [os.dup(2)]  # the process may have to write to it
        try:
            with log.open("ab") as printed:
                self._process = launch(hash_seed, printed, terminal)
        finally:
            for descriptor in terminal:
                os.close(descriptor)
        self._lines: queue.SimpleQueue[BaseModel | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, args=(self._process.stdin,), name="lines", daemon=True)
        self._writer.start()
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), name="events", daemon=True)
        self._reader.start()
        self._lines.put(job.model_copy(update={"terminal": next(iter(terminal), None)}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def next(self, timeout_s: float) -> Event | None:
        """Return the next event, or None after `timeout_s` without one.

        Raises:
            EOFError: there will be no more.
        """
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if event is None:
            raise EOFError
        return event

    def send(self, message: ControlMessage) -> None:
        """Queue a message; safe to call from any thread."""
        self._lines.put(message)

    def stop(self, reason: str | None = None) -> None:
        """Request the run to stop and write its results; events continue until `finished`, paused for this reason.

        `reason`: what of the infrastructure is lost; None for a stop by hand.
        """
        self.send(StopMessage(reason=reason))

    def kill(self) -> None:
        """Kill the process; what it had written is kept."""
        self._process.kill()

    def end(self) -> int:
        """Wait for the process to end, kill it if it does not; return its exit status (negative: the signal)."""
        self._lines.put(None)
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._writer.join(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return self._process.returncode

    def log_tail(self) -> str:
        """Return the last lines of its log, cut and safe to display."""
        with self._log_path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - TAIL_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
        return "\n".join(plain(line, limit=TAIL_COLUMNS) for line in lines[-TAIL_LINES:])

    def _write(self, stdin: IO[bytes]) -> None:
        """Write what is queued, then close stdin, which stops the run."""
        with contextlib.suppress(BrokenPipeError), stdin:  # it has ended, which its events report
            while (message := self._lines.get()) is not None:
                stdin.write(json.dumps(message.model_dump(mode="json")).encode() + b"\n")
                if self._lines.empty():
                    stdin.flush()

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            try:
                self._events.put(from_json(line))
            except ValidationError:
                break  # not one of ours: the process is treated as dead
        self._events.put(None)
