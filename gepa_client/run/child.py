"""The optimizer's own process: settings in on stdin, events out on stdout, whatever libraries print into the log.

Started as `python -P -m gepa_client.run.child` with `PYTHONHASHSEED=0`: GEPA's merge walks sets of names, so that a run
can be repeated only under a fixed hash seed. The first line of stdin is a `Job` as JSON; a further line, or the end of
stdin, which is also what a parent's death looks like, asks the run to stop.
"""

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gepa_client.run.events import Event

ENDED = 0


class EventWriter:
    """Stamps events and writes them, in order, to the parent and to a file anew, from a thread of its own.

    An interruption of the main thread can so never cut a line in half.
    """

    def __init__(self, descriptor: int, path: Path | None) -> None:
        self._descriptor = descriptor
        self._path = path
        self._began = time.monotonic()
        self._lines: queue.SimpleQueue[tuple[bytes, bool] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="events", daemon=True)
        self._thread.start()

    def emit(self, event: "Event") -> None:
        """Queue one event; may be called from any thread."""
        stamped = event.model_copy(update={"seconds": round(time.monotonic() - self._began, 3)})
        self._lines.put((stamped.model_dump_json().encode() + b"\n", event.event != "progress"))

    def close(self) -> None:
        """Write what is queued."""
        self._lines.put(None)
        self._thread.join()

    def _write(self) -> None:
        parent_listens = True
        with contextlib.ExitStack() as stack:
            story = stack.enter_context(self._path.open("wb")) if self._path is not None else None
            while (entry := self._lines.get()) is not None:
                line, kept = entry
                if kept and story is not None:
                    story.write(line)
                    story.flush()
                if parent_listens:
                    parent_listens = self._send(line)

    def _send(self, line: bytes) -> bool:
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except BrokenPipeError:
            return False  # the parent is gone; the file goes on
        return True


def main() -> int:
    """Do one job to its end; returns the exit status."""
    events_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    line = sys.stdin.readline()

    from gepa_client.run.driver import drive
    from gepa_client.run.folder import EVENTS
    from gepa_client.run.job import Job

    job = Job.model_validate_json(line)
    writer = EventWriter(events_fd, None if job.output is None else job.output / EVENTS)
    stopping = _Stopping()
    signal.signal(signal.SIGINT, stopping.on_signal)
    threading.Thread(target=_listen, args=(stopping,), name="stdin", daemon=True).start()
    try:
        drive(job, writer.emit, stopping.halt, stopping.drainable)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        writer.close()
    return ENDED


class _Stopping:
    """A wish to stop: what is in flight comes to its end where it is worth waiting for, else the main thread raises."""

    def __init__(self) -> None:
        from gepa_client.errors import Interrupted
        from gepa_client.halt import Halt

        self.halt = Halt()
        self._reason = Interrupted("paused", "stopped by hand")
        self._main_thread = threading.get_ident()
        self._drains = False

    def drainable(self, worth_it: bool) -> None:
        """Whether what is in flight is worth waiting for from now on."""
        self._drains = worth_it

    def wish(self) -> None:
        """Stop; may be called from any thread, and again."""
        self.halt.pull(self._reason)
        signal.pthread_kill(self._main_thread, signal.SIGINT)

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """In the main thread."""
        if not self._drains:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # once: what follows is putting things in order
            raise self._reason


def _listen(stopping: _Stopping) -> None:
    """A wish for each line, and at the end of stdin."""
    while sys.stdin.readline():
        stopping.wish()
    stopping.wish()


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # threads of libraries (litellm's, wandb's) may not keep a finished run from ending
