"""The optimizer's own process: settings in on stdin, events out on stdout, whatever libraries print into the log.

Started as `python -P -m gepa_client.run.child` with `PYTHONHASHSEED=0`: GEPA's merge walks sets of names, so that a run
can be repeated only under a fixed hash seed. The first line of stdin is a `Job` as JSON; a further line, or the end of
stdin, which is also what a parent's death looks like, asks the run to stop.
"""

import gc
import os
import signal
import sys
import threading
from types import FrameType

ENDED = 0


def main() -> int:
    """Do one job to its end; returns the exit status."""
    events_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    line = sys.stdin.readline()

    from gepa_client.errors import Interrupted
    from gepa_client.events import Finished
    from gepa_client.run.driver import drive
    from gepa_client.run.event_writer import EventWriter
    from gepa_client.run.folder import EVENTS
    from gepa_client.run.job import Job

    job = Job.model_validate_json(line)
    gc.freeze()  # what the imports left stays: looking through it again and again holds up every example
    gc.set_threshold(50_000, 20, 50)
    writer = EventWriter(events_fd, None if job.output is None else job.output / EVENTS)
    stopping = _Stopping()
    signal.signal(signal.SIGINT, stopping.on_signal)
    try:
        threading.Thread(target=_listen, args=(stopping,), name="stdin", daemon=True).start()
        drive(job, writer.emit, stopping.halt, stopping.drainable)
    except Interrupted as stopped:  # before the driving had begun
        writer.emit(Finished(status=stopped.status, reason=stopped.reason, metric_calls=0))
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

    def drainable(self) -> None:
        """From now on the work comes to its end by itself, and with it the record."""
        self._drains = True

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
