"""The entry point of the process of one optimization: `python -P -m gepa_service.jobs.work_main`.

Its order is on stdin, how it ended is on stdout. The end of stdin, which also follows the death of the process that
started it, stops the work. What is printed goes to the log.
"""

import gc
import os
import signal
import sys
import threading
import time

STOP_S = 60.0
"""Seconds that the process may take to end its sandboxes once the process that started it is gone."""


def main() -> None:
    """Carry out one order, and end this process."""
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no message
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.disable()  # it takes a sixth of the imports' time

    from gepa_client.sandboxing.session import signals_interrupt
    from gepa_service.jobs.ended_by import ENDING, STOPPED, ended_by
    from gepa_service.jobs.optimization import optimize
    from gepa_service.jobs.work_order import OptimizeOrder

    gc.enable()
    order = OptimizeOrder.model_validate_json(sys.stdin.readline())
    os.environ.update(order.secrets)
    threading.Thread(target=_follow, name="stdin", daemon=True).start()
    try:
        with signals_interrupt():
            ended = optimize(order)
    except KeyboardInterrupt:
        ended = STOPPED
    except ENDING as error:
        ended = ended_by(error)
    messages.write(ended.model_dump_json().encode() + b"\n")
    messages.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of libraries may not keep the process of ended work


def _follow() -> None:
    """Stop when stdin is closed: as by SIGTERM, and at once if that does not end it in time."""
    while sys.stdin.readline():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_S)
    os._exit(1)


if __name__ == "__main__":
    main()
