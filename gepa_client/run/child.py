"""The optimizer's own process: settings in on stdin, events out on stdout, whatever libraries print into the log.

Started as `python -P -m gepa_client.run.child` with `PYTHONHASHSEED=0`: GEPA's merge walks sets of names, so that a run
can be repeated only under a fixed hash seed. The first line of stdin is `{"output": folder, "config": {...}}`; a
further line, or the end of stdin, which is also what a parent's death looks like, asks the run to stop.
"""

import json
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
    """Stamps events and writes them, in order, to the parent and to `events.jsonl`, from a thread of its own.

    An interruption of the main thread can so never cut a line in half.
    """

    def __init__(self, descriptor: int, journal: Path) -> None:
        self._descriptor = descriptor
        self._journal = journal
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
        with self._journal.open("ab") as journal:
            while (entry := self._lines.get()) is not None:
                line, kept = entry
                if kept:
                    journal.write(line)
                    journal.flush()
                if parent_listens:
                    parent_listens = self._send(line)

    def _send(self, line: bytes) -> bool:
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except BrokenPipeError:
            return False  # the parent is gone; the journal goes on
        return True


def main() -> int:
    """Run one optimisation to its end; returns the exit status."""
    events_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    job = json.loads(sys.stdin.readline())

    from gepa_client.errors import Interrupted
    from gepa_client.run.config import RunConfig
    from gepa_client.run.folder import EVENTS
    from gepa_client.run.optimizer import run

    folder = Path(job["output"])
    writer = EventWriter(events_fd, folder / EVENTS)

    def stop(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # once: what follows is putting things in order
        raise Interrupted("cancelled", "stopped by hand")

    signal.signal(signal.SIGINT, stop)
    main_thread = threading.get_ident()
    threading.Thread(target=_listen, args=(main_thread,), name="stdin", daemon=True).start()
    try:
        run(RunConfig(**job["config"]), folder, writer.emit)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        writer.close()
    return ENDED


def _listen(main_thread: int) -> None:
    """Interrupt the main thread once for each line, and at the end of stdin."""
    while sys.stdin.readline():
        signal.pthread_kill(main_thread, signal.SIGINT)
    signal.pthread_kill(main_thread, signal.SIGINT)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # threads of libraries (litellm's, wandb's) may not keep a finished run from ending
