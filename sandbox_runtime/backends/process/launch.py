"""Runs a command, and ends with all that it started: nothing that it forks gets away from here.

    python -I -S launch.py OWNER FOLDER MEMORY FILE LISTENING COMMAND [ARGUMENT ...]

OWNER is the pid of whoever starts this, or 0 where it may outlive that; MEMORY and FILE are in bytes, or -1 for no
bound; LISTENING is the descriptor that the command finds as 3, or -1. Ends with the command's status (128 + signal
where that killed it), once that and all below it have ended: killed, if the command ends first, on SIGTERM, and when
OWNER is no more.

Orphans become children of this process (a subreaper, prctl(2)), so that it has a child for as long as anything is
left, however often that forks and ends. Standard library only.
"""

import ctypes
import errno
import os
import resource
import signal
import sys
import time

END_S = 20.0
"""How long something that cannot be killed is waited for."""

OWNER_LOOK_S = 2.0

_CANNOT_RUN, _NOT_FOUND = 126, 127
_PR_SET_CHILD_SUBREAPER = 36
_PAUSE_S = 0.01
_BUSY_ROUNDS = 50


def main() -> None:
    """Never returns."""
    owner, folder, memory, file, listening, *command = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit(f"{command[0]}: no subreaper: {os.strerror(ctypes.get_errno())}")
    pid = os.fork()
    if pid == 0:
        _become(folder, int(memory), int(file), int(listening), command)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(3, max(nothing, int(listening)) + 1)
    os._exit(_kept(pid, int(owner)))


def _become(folder: str, memory: int, file: int, listening: int, command: list[str]) -> None:
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(folder)
        # Not RLIMIT_AS: that counts what is reserved and never used, of which Node and Go reserve gigabytes.
        _bound(resource.RLIMIT_DATA, memory)
        _bound(resource.RLIMIT_FSIZE, file)
        _bound(resource.RLIMIT_CORE, 0)
        if listening >= 0:
            os.dup2(listening, 3)
            if listening != 3:
                os.close(listening)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and whoever it becomes would inherit that
            signal.signal(ignored, signal.SIG_DFL)
        os.execvpe(command[0], command, os.environ)  # noqa: S606  what it was given to run
    except OSError as error:
        # As a shell says it.
        status = _NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else _CANNOT_RUN
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(status)


def _bound(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    if most >= 0 and (hard == resource.RLIM_INFINITY or most < hard):
        resource.setrlimit(which, (most, most))


def _kept(command: int, owner: int) -> int:
    """The command's status, when it and all below it have ended."""
    status: int | None = None
    while status is None and owner in (0, os.getppid()):
        told = signal.sigtimedwait({signal.SIGCHLD, signal.SIGTERM}, OWNER_LOOK_S)
        if told is not None and told.si_signo == signal.SIGTERM:
            break
        status = _reaped(command)[0]
    deadline, rounds = time.monotonic() + END_S, 0
    while True:
        _kill_below(os.getpid())
        became, left = _reaped(command)
        status = became if status is None else status
        if not left or time.monotonic() > deadline:
            return 128 + signal.SIGKILL if status is None else status
        rounds += 1
        if rounds > _BUSY_ROUNDS:  # what forks without pause is met without pause; what does not end at once is not
            signal.sigtimedwait({signal.SIGCHLD}, _PAUSE_S)


def _reaped(command: int) -> tuple[int | None, bool]:
    """The command's status, if it is among those that have ended; and whether anything is left."""
    status: int | None = None
    while True:
        try:
            pid, how = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if pid == 0:
            return status, True
        if pid == command:
            ended = os.waitstatus_to_exitcode(how)
            status = ended if ended >= 0 else 128 - ended


def _kill_below(top: int) -> None:
    parents = [top]
    while parents:
        parent = parents.pop()
        for pid in _children(parent):
            _kill(pid, parent)
            parents.append(pid)


def _kill(pid: int, parent: int) -> None:
    """Unless the pid is another's by now: one that has got another parent is met in the next round."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  importing pathlib takes longer than all of this
            if int(file.read().rpartition(b")")[2].split()[1]) == parent:
                signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH, errno.EPERM):
            raise
    finally:
        os.close(process)


def _children(parent: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208  as above
            with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:  # noqa: PTH123  as above
                found += map(int, file.read().split())
    except OSError:
        pass  # it has ended: its children are ours by now
    return found


if __name__ == "__main__":
    main()
