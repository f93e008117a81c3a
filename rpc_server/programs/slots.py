"""What the pool keeps books on: pieces of work under way, and the processes they run in."""

import asyncio
from typing import Any

from rpc_server.programs.starting import Started
from rpc_server.programs.work import Work


class Ticket:
    """One piece of work on its way through the pool.

    `alone`: it must have a process to itself, for it is suspected of having ended one. `apart`: it must run while
    nothing else does, for it is suspected of having ended them all. `late`: past its deadline. `given_up`: nobody waits
    for it any more. `sent`, `log_mark`: the time, and the state of the log, when it was sent.
    """

    __slots__ = ("alone", "apart", "call_id", "given_up", "late", "log_mark", "sent", "slot", "timer", "work")

    def __init__(self, work: Work, call_id: str) -> None:
        self.work = work
        self.call_id = call_id
        self.alone = False
        self.apart = False
        self.late = False
        self.given_up = False
        self.slot: Slot | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.sent = 0.0
        self.log_mark = 0


class Slot:
    """A process and what runs in it.

    `ghosts` are given up, but not answered yet. `used`: it has been given something. `exclusive`: what runs in it must
    be alone. `restore`: state of the process it replaces, to be sent along with its first request.
    """

    def __init__(self, started: Started, restore: Any) -> None:
        self.process = started.process
        self.room = started.discovery.limits.max_concurrency
        self.running: set[Ticket] = set()
        self.ghosts: set[Ticket] = set()
        self.used = False
        self.exclusive = False
        self.restore = restore
