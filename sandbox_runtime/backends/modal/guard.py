"""Run one command in a sandbox with limits, and end everything that it started. Sent as text: standard library only.

    python -I -S -c GUARD run MARK SECONDS PROCESSES FILE_MB CWD ARGV...    SECONDS 0: no limit
    python -I -S -c GUARD end MARK                                          ends the command of that mark

The exit status is the command's, 128 + signal if a signal ended it. After a time-out, MARK follows its output on
stderr. All its descendants stay below the guard, in whichever session they are: the guard adopts orphans.
"""
# ruff: noqa: PTH103, PTH123, PTH208
# It is started for each command, and pathlib would take longer to import than all the rest of it.

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time

SET_CHILD_SUBREAPER = 36
ENDING = {signal.SIGCHLD, signal.SIGTERM}


def run(mark: str, seconds: str, processes: str, file_mb: str, cwd: str, *argv: str) -> int:
    """Run the command and end everything that it started; return its exit status."""
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    for limit, value in ((resource.RLIMIT_NPROC, int(processes)), (resource.RLIMIT_FSIZE, int(file_mb) << 20)):
        hard = resource.getrlimit(limit)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (bound, bound))
    try:
        for name in ("HOME", "TMPDIR"):
            os.makedirs(os.environ[name], exist_ok=True)
        os.chdir(cwd)
        child = os.posix_spawnp(
            argv[0], argv, os.environ, setsid=True, setsigmask=(), setsigdef=(signal.SIGPIPE, signal.SIGXFSZ)
        )
    except OSError as error:
        os.write(2, f"{argv[0]} cannot be run: {error}\n".encode())
        return 126 if isinstance(error, PermissionError) else 127
    deadline = time.monotonic() + float(seconds) if float(seconds) else None
    status = None
    while status is None:
        left = 3600.0 if deadline is None else deadline - time.monotonic()
        woken = signal.sigtimedwait(ENDING, left) if left > 0 else None
        if woken is None and deadline is not None and time.monotonic() >= deadline:
            status = 124
            end_children()
            os.write(2, mark.encode())
        elif woken is not None and woken.si_signo == signal.SIGTERM:
            status = 128 + signal.SIGTERM
        else:
            status = reaped(child)
    end_children()
    return status


def reaped(child: int) -> int | None:
    """Collect ended processes; return the command's status, None if it still runs."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def end_children() -> None:
    """Kill all descendants until none is left."""
    while True:
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def descendants() -> set[int]:
    """Return the descendants of this process that /proc lists now."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
            parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def end(mark: str) -> int:
    """Ask the guard of that mark to end its command."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/cmdline", "rb") as cmdline:
            words = cmdline.read().split(b"\0")
            if b"run" in words and words[words.index(b"run") + 1] == mark.encode():
                os.kill(int(name), signal.SIGTERM)
    return 0


if __name__ == "__main__":
    os._exit(run(*sys.argv[2:]) if sys.argv[1] == "run" else end(*sys.argv[2:]))
