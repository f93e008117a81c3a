"""The entry point of a job process: `python -P -m gepa_service.jobs.job_main`, order on stdin, messages on stdout.

A fork of the zygote calls `run` instead. The end of stdin, which also follows the worker's death, stops the run. What
is printed goes to the log.
"""

import os
import signal
import sys
import threading
import time
from typing import NoReturn

STOP_S = 60.0
"""Seconds that the process may take to end its sandboxes once its worker is gone."""


def run() -> NoReturn:
    """Carry out one order, and end this process."""
    _carry_out_order()
    sys.stderr.flush()
    os._exit(0)  # threads of libraries may not keep an ended job's process


def _carry_out_order() -> None:
    messages = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    line = sys.stdin.readline()

    from gepa_client.journal.http_store import TOKEN_FILE_VARIABLE
    from gepa_service.jobs.job_order import JobOrder
    from gepa_service.jobs.job_process import carry_out

    order = JobOrder.model_validate_json(line)
    os.environ.update(order.secrets)
    os.environ[TOKEN_FILE_VARIABLE] = str(order.token_file)
    threading.Thread(target=_follow, name="worker", daemon=True).start()
    ended = carry_out(order)
    os.write(messages, ended.model_dump_json().encode() + b"\n")
    os.close(messages)


def _follow() -> None:
    """Stop when the worker closes stdin or is gone: as by SIGTERM, and at once if that does not end it in time."""
    while sys.stdin.readline():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_S)
    os._exit(1)


if __name__ == "__main__":
    run()
