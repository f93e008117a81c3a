"""Ends what examples leave behind, where every process that can be seen is the program's own: in a jail."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Collection, NamedTuple

_FIRST = 1  # the jail's own, which ends last
_ALL = -1  # but that one, and the one that says so
_PATIENCE_S = 0.02
_AT_MOST_S = 5.0
_ROUND_S = 0.002
_OVER = (b"Z", b"X")


class _Seen(NamedTuple):
    """A process: its parent's pid, and when it started, by which it is told from another of the same pid."""

    parent: int
    started: int


class Leftovers:
    """Whatever runs beside the processes that are there when this is made, and those that are known.

    A process that left its family, by a parent that ended, cannot be told to be anybody's: it is a leftover.
    """

    def __init__(self) -> None:
        self._own = _seen() or {}
        self._stopped = False

    def stop(self) -> None:
        """Have everything but this process stand still until `end` is over."""
        self._stopped = True
        _signal(_ALL, signal.SIGSTOP)

    def end(self, known: Collection[int]) -> None:
        """Kill all of them; what descends from a `known` pid, or from what was there at first, is none.

        Everything stands still meanwhile: else those that still run would use the room to start more, and so many may
        run that this process hardly would.
        """
        begun = time.monotonic()
        if not self._stopped:
            found = self._found(known, until=begun + _PATIENCE_S)
            if found is not None and not found:
                return
            self.stop()
        try:
            while found := self._found(known):
                if time.monotonic() > begun + _AT_MOST_S:
                    _signal(_ALL, signal.SIGKILL)  # the known ones too, which are started again
                    return
                for pid in found:
                    _signal(pid, signal.SIGKILL)
                time.sleep(_ROUND_S)  # their ends are the kernel's to see to
        finally:
            self._stopped = False
            _signal(_ALL, signal.SIGCONT)

    def _found(self, known: Collection[int], until: float | None = None) -> set[int] | None:
        """Their pids; None where it takes longer than `until` to tell."""
        seen = _seen(until)
        if seen is None:
            return None
        heads = {pid for pid, process in self._own.items() if seen.get(pid) == process}
        heads = heads.union(known) - {_FIRST, os.getpid()}
        return {pid for pid in seen if pid not in (_FIRST, os.getpid()) and not _descends(pid, heads, seen)}


def _descends(pid: int, heads: set[int], seen: dict[int, _Seen]) -> bool:
    passed: set[int] = set()
    while pid not in heads:
        if pid not in seen or pid in passed:  # read at different times, parents may even seem to go round
            return False
        passed.add(pid)
        pid = seen[pid].parent
    return True


def _seen(until: float | None = None) -> dict[int, _Seen] | None:
    """The processes that have not ended; None where it takes longer to read them all."""
    found: dict[int, _Seen] = {}
    for name in os.listdir("/proc"):
        if until is not None and time.monotonic() > until:
            return None
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it has just ended
        if fields[0] not in _OVER:
            found[int(name)] = _Seen(int(fields[1]), int(fields[19]))
    return found


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended
        os.kill(pid, number)
