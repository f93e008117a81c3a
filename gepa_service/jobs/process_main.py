"""The entry point of a process that does work: one optimization, or a tenant's batches and steps with one repository.

It is started as `python -P -m gepa_service.jobs.process_main`. Requests come on stdin, reports go to stdout, see
`messages`; the first request decides which of the two it does. The end of stdin, which also follows the death of the
process that started it, stops all works and ends their sandboxes. What a work prints is appended to `job.log` in its
folder; what libraries print beside batches and steps goes to the log of this process, in its working directory, which
it removes at its end. All orders have the same secrets.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from evolverpc_common.files import remove_tree
from evolverpc_common.open_connections import raise_descriptor_limit
from gepa_service.jobs.messages import REQUESTS, Begin, OptimizeOrder, Reported

LOG = "job.log"
STOP_S = 60.0
"""Seconds that the process may take to end its sandboxes once the process that started it is gone."""

APART_S = 0.1
"""Seconds between two signals, so that they are two: the first pauses a run, the second gives its calls up."""


def main() -> None:
    """Carry out orders until stdin ends, or one optimization, and end this process."""
    folder, lines = Path.cwd(), os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no report
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def report(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the process that started this one is gone; stdin ends too
            lines.write(line.encode() + b"\n")
            lines.flush()

    line = sys.stdin.buffer.readline()
    request = REQUESTS.validate_json(line) if line else None
    if isinstance(request, Begin) and isinstance(request.order, OptimizeOrder):
        _optimize(request.order, report)
    elif request is not None:
        _serve(line, report)
    sys.stderr.flush()
    remove_tree(folder)  # the process that started this one may have been killed
    os._exit(0)  # threads of libraries may not keep the process


def _optimize(order: OptimizeOrder, report: Callable[[str], None]) -> None:
    """Carry out an optimization; each further request stops it, as SIGTERM does."""
    os.dup(sys.stderr.fileno())  # the open file is the lock of this process's folder
    with (order.folder / LOG).open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    os.chdir(order.folder)
    gc.disable()  # it takes a sixth of the imports' time

    from gepa_client.sandboxing.session import signals_interrupt
    from gepa_service.jobs.optimization import optimize
    from gepa_service.jobs.work_session import ENDING, STOPPED, ended_by

    gc.enable()
    os.environ.update(order.secrets)

    def stop(_line: bytes = b"") -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(APART_S)

    _follow_stdin(stop, stop)
    try:
        with signals_interrupt():
            ended = optimize(order)
    except KeyboardInterrupt:
        ended = STOPPED
    except ENDING as error:
        ended = ended_by(error)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of stdin, which follows the report, stops nothing more
    report(Reported(work=order.folder.name, message=ended).model_dump_json())


def _serve(first: bytes, report: Callable[[str], None]) -> None:
    """Carry out batches and steps until stdin ends."""
    gc.disable()

    from gepa_client.sandboxing.setup import MOST_DESCRIPTORS
    from gepa_service.jobs.batches_and_steps import ProcessWorks

    gc.freeze()
    gc.enable()
    logging.basicConfig(level=logging.WARNING)
    raise_descriptor_limit(MOST_DESCRIPTORS)  # once: each set-up restores what it found

    async def serve() -> None:
        works, loop, requests = ProcessWorks(report), asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

        def take(line: bytes | None) -> None:
            loop.call_soon_threadsafe(requests.put_nowait, line)

        works.take(first)
        _follow_stdin(take, lambda: take(None))
        while (line := await requests.get()) is not None:
            works.take(line)
        await works.close()

    asyncio.run(serve())


def _follow_stdin(take: Callable[[bytes], None], stop: Callable[[], None]) -> None:
    """Hand on each line of stdin, in a thread, and stop at its end; `STOP_S` later the process ends."""

    def follow() -> None:
        for line in sys.stdin.buffer:
            take(line)
        stop()
        time.sleep(STOP_S)
        os._exit(1)

    threading.Thread(target=follow, name="stdin", daemon=True).start()


if __name__ == "__main__":
    main()
