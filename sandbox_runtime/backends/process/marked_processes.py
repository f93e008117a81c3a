"""Find the processes of a sandbox in /proc by a variable of their environment, and end all of them."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from evolverpc_common import process_reaper

MARK = "EVOLVERPC_SANDBOX"
"""The variable that marks processes: `ID` for a sandbox's server, `ID.NUMBER` for one of its commands."""

REAPER = process_reaper.__file__

END_S = 30.0
_TERMINATE_S = 25.0
_FIRST_LOOK_S = 0.002
_LONGEST_LOOK_S = 0.05


class _Process(NamedTuple):
    parent: int
    session: int
    started: int


def terminate_and_wait(launches: Collection[int]) -> None:
    """Terminate the reapers of these pidfds, and wait until they have ended everything. Blocks."""
    waiting = select.poll()
    left = set(launches)
    for launch in launches:
        waiting.register(launch, select.POLLIN)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(launch, signal.SIGTERM)
    deadline = time.monotonic() + _TERMINATE_S
    while left and (rest := deadline - time.monotonic()) > 0:
        for launch, _ in waiting.poll(rest * 1000):
            waiting.unregister(launch)
            left.discard(launch)


def terminate_reapers(mark: str) -> None:
    """Terminate every reaper with this mark: killing it would release what it holds. Blocks."""
    with contextlib.ExitStack() as opened:
        found = []
        for pid, process in _running():
            if _is_marked(pid, mark) and _is_launch(pid):
                with contextlib.suppress(ProcessLookupError):
                    found.append(os.pidfd_open(pid))
                    opened.callback(os.close, found[-1])
                    now = _read(pid)
                    if now is None or now.started != process.started:
                        found.pop()
        terminate_and_wait(found)


def end_all(
    mark: str, leader: Callable[[], int | None] = lambda: None, *, since: int = 0, within_s: float = END_S
) -> set[int]:
    """Kill all processes with this mark until none is found twice, because one that forks may be missed once. Blocks.

    This is for processes that no reaper holds any more; one that forks without pause may be missed twice.

    Their descendants, and the session of `leader`, are killed too: a process that made itself undumpable hides its
    environment. `leader` must not have been waited for, so that its pid is still its own.

    `since`: the start of the oldest of them, in clock ticks since boot; older processes are not examined.

    Returns the pids that are left after `within_s` seconds.
    """
    deadline = time.monotonic() + within_s
    pause, quiet = _FIRST_LOOK_S, 0
    while quiet < 2:
        found = _kill_found(mark, leader(), since)
        if not found:
            quiet += 1
            continue
        if time.monotonic() > deadline:
            return found
        quiet = 0
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_LOOK_S)
    return set()


def _kill_found(mark: str, leader: int | None, since: int) -> set[int]:
    """Kill the processes that are found, and return their pids."""
    running: dict[int, _Process] = {}
    found: set[int] = set()
    for pid, process in _running():
        if process.started < since:
            continue
        running[pid] = process
        if pid != os.getpid() and (_is_marked(pid, mark) or leader in (pid, process.session)):
            _kill(pid, process.started)  # at once: it may fork and end before all others are looked at
            found.add(pid)
    below = found
    while below:
        below = {pid for pid, process in running.items() if process.parent in found} - found - {os.getpid()}
        for pid in below:
            _kill(pid, running[pid].started)
        found |= below
    return found


def _kill(pid: int, started: int) -> None:
    """Kill a process unless its pid has become another's. One of another user cannot be killed and is found again."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process = os.pidfd_open(pid)
        try:
            now = _read(pid)
            if now is not None and now.started == started:
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def _running() -> Iterator[tuple[int, _Process]]:
    """Yield processes, the newest first, because those end soonest."""
    names = os.listdir("/proc")  # noqa: PTH208  a Path for each takes longer than reading what is in it
    for pid in sorted((int(name) for name in names if name.isdigit()), reverse=True):
        process = _read(pid)
        if process is not None:
            yield pid, process


def _read(pid: int) -> _Process | None:
    """Return the state of a process; None if it has ended."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # bare, as this is most of what a look costs
    except FileNotFoundError:
        return None
    try:
        fields = os.read(file, 4096).rpartition(b")")[2].split(maxsplit=20)
    except ProcessLookupError:
        return None
    finally:
        os.close(file)
    if fields[0] in (b"Z", b"X"):
        return None
    return _Process(parent=int(fields[1]), session=int(fields[3]), started=int(fields[19]))


def _is_launch(pid: int) -> bool:
    try:
        return f"\0{REAPER}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def _is_marked(pid: int, mark: str) -> bool:
    try:
        environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # gone, or another user's
    wanted = f"\0{MARK}={mark}".encode()
    return wanted + b"\0" in environment or wanted + b"." in environment
