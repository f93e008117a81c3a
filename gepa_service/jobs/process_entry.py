"""What the entry points of processes that do works share: their messages on stdout, and their end with stdin."""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import IO

STOP_S = 60.0
"""Seconds that the process may take to end its sandboxes once the process that started it is gone."""


def opened_messages() -> IO[bytes]:
    """Return stdout, for messages; what is printed from now on goes to stderr."""
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no message
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return messages


def follow_stdin(take: Callable[[bytes], None], stop: Callable[[], None]) -> None:
    """Hand on each line of stdin, in a thread, and stop at its end; `STOP_S` later the process ends."""

    def follow() -> None:
        for line in sys.stdin.buffer:
            take(line)
        stop()
        time.sleep(STOP_S)
        os._exit(1)

    threading.Thread(target=follow, name="stdin", daemon=True).start()
