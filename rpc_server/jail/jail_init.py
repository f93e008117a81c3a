"""The first program in a jail: sets resource limits for everything in it, then executes the command.

Started by its path: `python -I -S jail_init.py PROCESSES NICENESS -- COMMAND ...`. It runs inside, as the limit on
processes then counts the jail's alone.
"""

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path

_NOT_STARTED = 127
_FIRST_TO_GO = "1000"
_MEMORY_VARIABLE = "GEPA_PROCESS_MEMORY_MB"
"""Limits the memory of each process in the jail, if no control group limits that of all."""

_PER_JAIL = (5, 14)
"""The first Linux that counts a user's processes in each user namespace separately."""


def main() -> None:
    """Execute the command."""
    processes, niceness, separator, *command = sys.argv[1:]
    if separator != "--":
        sys.exit("usage: jail_init.py PROCESSES NICENESS -- COMMAND ...")
    with contextlib.suppress(OSError):  # the kernel ends jailed processes first; some systems have no such file
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    os.nice(int(niceness))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory_mb = os.environ.get(_MEMORY_VARIABLE, "")
    if memory_mb.isdecimal():
        _bound(resource.RLIMIT_DATA, int(memory_mb) * 2**20)
    if tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) >= _PER_JAIL:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        # At most half of the server's own limit, so that processes outside the jail can continue.
        bound = int(processes) if hard == resource.RLIM_INFINITY else min(int(processes), hard // 2)
        resource.setrlimit(resource.RLIMIT_NPROC, (bound, bound))
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606  # executing the command is its purpose
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode(errors="replace"))
        sys.exit(_NOT_STARTED)


def _bound(limit: int, most: int) -> None:
    _, hard = resource.getrlimit(limit)
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(limit, (bound, bound))


if __name__ == "__main__":
    main()
