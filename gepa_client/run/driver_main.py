"""The entry point of the driver process: job on stdin, events on stdout, everything that libraries print in the log.

Started as `python -P -m gepa_client.run.driver_main` with `PYTHONHASHSEED=0`: GEPA's merge iterates over sets of names,
so a run repeats exactly only under a fixed hash seed. The first line of stdin is a `DriverJob` as JSON; further lines
are `gepa_client.run.control_messages`. The end of stdin, which also follows the parent's death, stops the run.

With the number of a socket as argument it was started ahead of its job, which may call a model: it loads what it will
need, and takes the descriptors of its log, and of the terminal if there is one, from that socket.
"""

import gc
import os
import signal
import socket
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:  # they take a second to import, while the job is on its way
    from gepa_client.errors import Interrupted
    from gepa_client.run.gateway_record import GatewayRecord

BY_HAND = "stopped by hand"
ALONE = "the command that drove the run ended before the run"


def main() -> None:
    """Do one job to its end."""
    events_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    gc.disable()  # garbage collection takes a fifth of the imports' time
    from gepa_client.errors import Interrupted
    from gepa_client.gepa.litellm_model import preload
    from gepa_client.run.control_messages import DriverJob
    from gepa_client.run.driver import drive
    from gepa_client.run.event_writer import EventWriter
    from gepa_client.run.failures import finished_by
    from gepa_client.run.gateway_record import GatewayRecord
    from gepa_client.run.output_folder import EVENTS

    terminal = None
    if sys.argv[1:]:
        preload()
        terminal = _taken(int(sys.argv[1]))
    job = DriverJob.model_validate_json(sys.stdin.readline())
    if terminal is not None:
        job = job.model_copy(update={"terminal": terminal})
    if "reflection_lm" in job.config:
        preload()
    gc.freeze()  # collecting the objects of the imports again and again would slow every example
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    writer = EventWriter(events_fd, None if job.output is None else job.output / EVENTS)
    stopping, gateway = _StopHandler(), GatewayRecord()
    signal.signal(signal.SIGINT, stopping.on_signal)
    try:
        threading.Thread(target=_listen, args=(stopping, gateway), name="stdin", daemon=True).start()
        drive(job, writer.emit, stopping.cancel_token, stopping.drainable, gateway)
    except Interrupted as stopped:  # before the run was driven
        writer.emit(finished_by(stopped))
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        writer.close()


def _taken(number: int) -> int | None:
    """Take the log from a socket, for what is printed from now on; return the descriptor of the terminal, if given."""
    with socket.socket(fileno=number) as channel:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 2)
    if not descriptors:
        sys.exit(0)  # there will be no job
    log, *terminal = descriptors
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    os.close(log)
    return next(iter(terminal), None)


class _StopHandler:
    """Stops the run: examples in flight are completed if the run is drainable, else the main thread raises."""

    def __init__(self) -> None:
        from gepa_client.transport.event_loop import CancelToken

        self.cancel_token = CancelToken()
        self._reason: Interrupted | None = None
        self._main_thread = threading.get_ident()
        self._drains = False

    def drainable(self) -> None:
        """Let the work end by itself from now on, and with it the record."""
        self._drains = True

    def stop(self, reason: "Interrupted") -> None:
        """Stop the run; safe to call from any thread, and again: the first reason wins."""
        self._reason = self._reason or reason
        self.cancel_token.cancel(self._reason)
        signal.pthread_kill(self._main_thread, signal.SIGINT)

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Raise the reason in the main thread, unless the run is drainable."""
        if not self._drains and self._reason is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # once: what follows is the clean-up
            raise self._reason


def _listen(stopping: _StopHandler, gateway: "GatewayRecord") -> None:
    """Read control messages as they arrive, so that the supervisor never waits; stop the run at the end of stdin."""
    from gepa_client.errors import Interrupted, summary
    from gepa_client.run.control_messages import CONTROL_MESSAGES, CapMessage, StopMessage

    while text := sys.stdin.readline():
        try:
            message = CONTROL_MESSAGES.validate_json(text)
        except ValueError as error:
            stopping.stop(
                Interrupted("failed", f"the driver process received an invalid control message: {summary(error)}")
            )
            continue
        match message:
            case StopMessage():
                lost = message.reason is not None
                stopping.stop(Interrupted("paused", message.reason or BY_HAND, infrastructure=lost))
            case CapMessage():
                gateway.capped(message.reason)
            case _:
                gateway.receive(message)
    stopping.stop(Interrupted("paused", ALONE))


def run() -> NoReturn:
    """Do one job, and end this process."""
    main()
    sys.stderr.flush()
    os._exit(0)  # threads of libraries (litellm's, wandb's) may not keep a finished run from ending


if __name__ == "__main__":
    run()
