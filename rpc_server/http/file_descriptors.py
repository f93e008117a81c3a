"""The descriptors of this process: as many as may be had, and connections that leave some for everything else."""

import resource
from collections import OrderedDict
from typing import Protocol

_ENOUGH = 4096


class Connection(Protocol):
    """One connection of a client."""

    @property
    def idle(self) -> bool:
        """Whether no request of it is being answered."""
        ...

    def force_close(self) -> None:
        """Close it now."""
        ...


class Connections:
    """The open connections. Beyond half of the descriptors, the one that was silent longest is closed for a new one."""

    def __init__(self) -> None:
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self._open: OrderedDict[Connection, None] = OrderedDict()

    def opened(self, connection: Connection) -> None:
        """Count a new connection in."""
        if len(self._open) >= self._limit:
            longest = next((each for each in self._open if each.idle), None)
            if longest is not None:
                self.closed(longest)
                longest.force_close()
        self._open[connection] = None

    def used(self, connection: Connection) -> None:
        """Note that something came through it."""
        if connection in self._open:
            self._open.move_to_end(connection)

    def closed(self, connection: Connection) -> None:
        """Count it out; doing it twice changes nothing."""
        self._open.pop(connection, None)


def raise_descriptor_limit() -> None:
    """Raise the limit of this process towards what the system allows; programs that it starts inherit that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(_ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
