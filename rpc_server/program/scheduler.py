"""Schedule requests on program processes: tasks, worker slots, and the order in which tasks run."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from rpc_server.program.process import Heartbeat
from rpc_server.program.process_factory import Started
from rpc_server.program.work import Work


class Ticket:
    """One piece of work on its way through the pool.

    `alone`: it must have a process to itself, because it is suspected of having ended or blocked one. `apart`: it must
    run while nothing else does, because it is suspected of having ended all processes. `died`: a process ended under it
    before. `late`: past its deadline. `given_up`: its call needs no answer any more. `isolated`: its process has run
    nothing else. `sent`, `log_mark`, `held_mark`: the time, the state of the log and the heartbeat's `held_s` when it
    was sent.
    """

    __slots__ = (
        "alone",
        "apart",
        "call_id",
        "died",
        "given_up",
        "held_mark",
        "isolated",
        "late",
        "log_mark",
        "sent",
        "slot",
        "timer",
        "work",
    )

    def __init__(self, work: Work, call_id: str) -> None:
        self.work = work
        self.call_id = call_id
        self.alone = False
        self.apart = False
        self.died = False
        self.late = False
        self.given_up = False
        self.isolated = False
        self.slot: Slot | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.sent = 0.0
        self.log_mark = 0
        self.held_mark = 0.0


class Slot:
    """A process and what runs in it.

    `ghosts` are given up, but not answered yet. `used`: it has been given something. `exclusive`: what runs in it must
    be alone. `restore`: state of the process it replaces, to be sent along with its first request. `heartbeat`:
    measures whether it answers while it works; None where that cannot be measured.
    """

    def __init__(self, started: Started, restore: Any, heartbeat: Heartbeat | None) -> None:
        self.process = started.process
        self.heartbeat = heartbeat
        self.room = started.discovery.limits.max_concurrency
        self.running: set[Ticket] = set()
        self.ghosts: set[Ticket] = set()
        self.used = False
        self.exclusive = False
        self.restore = restore


class Turns:
    """Calls wait in a line each, and the lines take turns, so that a short call need not wait for a long one.

    Before them comes what must run again. Beside them wait the suspects: those that must have a process to themselves
    (`alone`), and those that must run while nothing else does (`apart`).
    """

    def __init__(self) -> None:
        self._lines: deque[deque[Ticket]] = deque()
        self._again: deque[Ticket] = deque()
        self._alone: deque[Ticket] = deque()
        self._apart: deque[Ticket] = deque()

    @property
    def suspects(self) -> int:
        """How many wait to run alone or apart."""
        return len(self._alone) + len(self._apart)

    @property
    def any_alone(self) -> bool:
        """Whether one waits to have a process to itself."""
        return bool(self._alone)

    @property
    def any_apart(self) -> bool:
        """Whether one waits to run while nothing else does."""
        return bool(self._apart)

    def join(self, tickets: Sequence[Ticket]) -> None:
        """A call's pieces of work, at the end."""
        self._lines.append(deque(tickets))

    def again(self, ticket: Ticket) -> None:
        """Work that ran already and must once more, through no fault of its own: the first in its place."""
        (self._alone if ticket.alone else self._again).appendleft(ticket)

    def suspect(self, ticket: Ticket) -> None:
        """Work that is `alone`, or `apart`, behind its like."""
        (self._apart if ticket.apart else self._alone).append(ticket)

    def next(self) -> Ticket | None:
        """The next that any process may have; None when there is none."""
        while self._again:
            ticket = self._again.popleft()
            if not ticket.given_up:
                return ticket
        while self._lines:
            line = self._lines.popleft()
            ticket = line.popleft()
            if line:
                self._lines.append(line)
            if not ticket.given_up:
                return ticket
        return None

    def next_alone(self) -> Ticket:
        """The next of those that `any_alone` is about."""
        return self._alone.popleft()

    def next_apart(self) -> Ticket:
        """The next of those that `any_apart` is about."""
        return self._apart.popleft()

    def forget_given_up(self) -> None:
        """Let go of suspects that nobody waits for; others are passed over when their turn comes."""
        self._alone = deque(ticket for ticket in self._alone if not ticket.given_up)
        self._apart = deque(ticket for ticket in self._apart if not ticket.given_up)

    def waiting(self) -> list[Ticket]:
        """All of them."""
        return [*self._again, *self._alone, *self._apart, *(ticket for line in self._lines for ticket in line)]
