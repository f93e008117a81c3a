"""What the pool keeps books on: pieces of work under way, and the processes they run in."""

import asyncio
from typing import Any

from rpc_server.program.heartbeat import Heartbeat
from rpc_server.program.starting import Started
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
