"""A port of this machine that sandboxes elsewhere reach, one for each job."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from gepa_service.jobs.work_order import Front

Forward = Callable[[int], AbstractContextManager[str]]
"""Makes a port reachable from elsewhere while its block runs, and gives the address."""


@contextlib.contextmanager
def opened_front(forward: Forward | None) -> Iterator[Front | None]:
    """Forward a free port for the block; None if nothing has to be reached from elsewhere."""
    if forward is None:
        yield None
        return
    port = free_port()
    with forward(port) as url:
        yield Front(port=port, url=url)


def free_port() -> int:
    """Return a port at which nothing of this machine listens now."""
    with socket.create_server(("", 0)) as found:
        return int(found.getsockname()[1])
