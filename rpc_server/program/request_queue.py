"""Requests that wait for a process, in fair order, and processes with the requests that they work on."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from protocol import DiscoverResult
from rpc_server.program.process import ProgramProcess
from rpc_server.program.process_requests import Isolation, ProcessRequest


class WorkerSlot:
    """A process that answers requests, its `discover` result, and its requests.

    `running`: those not answered yet, also abandoned ones. `used`: it has received a request. `isolation`: of its
    requests. `late`: it is to be replaced, as what ran too long may still run in it. `restore`: adapter state of the
    process it replaces, for its first request.
    """

    def __init__(self, process: ProgramProcess, discovery: DiscoverResult) -> None:
        self.process = process
        self.discovery = discovery
        self.running: set[ProcessRequest] = set()
        self.used = False
        self.isolation = Isolation.NONE
        self.late = False
        self.restore: Any = None

    @property
    def live(self) -> int:
        """The number of its requests that a call waits for."""
        return sum(not request.abandoned for request in self.running)

    @property
    def room(self) -> int:
        """The number of requests that it takes at once."""
        return self.discovery.limits.max_concurrency


class RequestQueue:
    """One line per call, served round-robin, so that a short call need not wait for a long one.

    What runs again waits by its isolation.
    """

    def __init__(self) -> None:
        self._calls: deque[deque[ProcessRequest]] = deque()
        self._again: dict[Isolation, deque[ProcessRequest]] = {each: deque() for each in reversed(Isolation) if each}

    def add(self, requests: Sequence[ProcessRequest]) -> None:
        """Queue the requests of a call."""
        self._calls.append(deque(requests))

    def add_again(self, request: ProcessRequest) -> None:
        """Queue a request that runs again."""
        self._again[request.isolation].append(request)

    def isolations(self) -> list[Isolation]:
        """Return for which isolations requests wait, the highest first."""
        again = [isolation for isolation, line in self._again.items() if line]
        return [*again, Isolation.NONE] if self._calls else again

    @property
    def waiting_first(self) -> int:
        """The number of requests that have not run yet."""
        return sum(map(len, self._calls))

    @property
    def waiting_again(self) -> int:
        """The number of requests that run again, each of which needs a process."""
        return sum(map(len, self._again.values()))

    def take(self, isolation: Isolation) -> ProcessRequest:
        """Remove and return the next request of this isolation; one must wait."""
        if isolation:
            return self._again[isolation].popleft()
        line = self._calls.popleft()
        request = line.popleft()
        if line:
            self._calls.append(line)
        return request

    def drop_abandoned(self) -> None:
        """Remove what no call waits for."""
        lines = (deque(request for request in line if not request.abandoned) for line in self._calls)
        self._calls = deque(line for line in lines if line)
        for isolation, line in self._again.items():
            self._again[isolation] = deque(request for request in line if not request.abandoned)

    def all(self) -> list[ProcessRequest]:
        """Return all requests that wait."""
        return [request for line in (*self._calls, *self._again.values()) for request in line]
