"""Set up a forked process: its order, descriptors, user and signals; and system calls that Python 3.11 lacks."""

import ctypes
import json
import os
import signal
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

Child = Callable[[], None]
"""What a forked process does; when it returns, the interpreter's main program ends."""

_SCORE = 500

FAILED = 125
"""The exit status of a process that could not do its work, as of `docker run`."""


def read_order(descriptor: int) -> Any:
    """Return the JSON document in a file. The daemon itself never reads it, because it may hold secrets."""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        return json.load(file)


def close_all_but(kept: Iterable[int]) -> None:
    """Close every descriptor but these and the standard ones."""
    start = 3
    for descriptor in sorted({one for one in kept if one >= start}):
        if start < descriptor:  # an empty range may close everything: the kernel's bounds are unsigned
            os.closerange(start, descriptor)
        start = descriptor + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))


def raise_oom_score() -> None:
    """Make the kernel end this process before others if the machine runs out of memory."""
    with open("/proc/self/oom_score_adj", "r+") as file:  # noqa: PTH123  cheaper, and this is after a fork
        if int(file.read()) < _SCORE:
            file.seek(0)
            file.write(str(_SCORE))


def join(groups: Iterable[int]) -> None:
    """Move this process into the control groups whose `cgroup.procs` these are."""
    for descriptor in groups:
        os.write(descriptor, b"0")
        os.close(descriptor)


def become_user(user: int | None) -> None:
    """Become this user, with the group of the same number and no other; None changes nothing."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def signals_as_new() -> None:
    """Reset signals as in a process that a shell starts: none handled, ignored or blocked."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # one of those that the C library keeps for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def wait_for(child: int, ending: signal.Signals) -> NoReturn:
    """Exit as the child does; on SIGTERM send it `ending` first. SIGTERM must be blocked since before the fork."""
    signals = {signal.SIGTERM, signal.SIGCHLD}
    while True:
        waited, status = os.waitpid(child, os.WNOHANG)
        if waited == child:
            os._exit(exit_status(status))
        if signal.sigwait(signals) == signal.SIGTERM:
            os.kill(child, ending)


def reap_until(child: int) -> NoReturn:
    """Reap children as the first process of a pid namespace must, and exit as `child` does."""
    while True:
        waited, status = os.wait()
        if waited == child:
            os._exit(exit_status(status))


def exit_status(status: int) -> int:
    """Return the exit status for a wait status, 128 + signal if a signal ended the process."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def fail(error: BaseException, descriptor: int = 2) -> NoReturn:
    """Write the error to the container's log, and exit."""
    os.write(descriptor, f"{type(error).__name__}: {error}\n".encode())
    os._exit(FAILED)


NEW_MOUNTS = 0x00020000
NEW_PIDS = 0x20000000

NO_SUID, NO_DEVICES, NO_EXEC, BIND, MOVE, RECURSIVE, PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x2000, 0x4000, 0x40000
"""Flags of `mount`."""

OWNER_OF_NAMESPACE = 0xB701
"""The ioctl that opens the user namespace which owns a namespace."""

_DEATH_SIGNAL, _DUMPABLE, _DROP_BOUND, _CHILD_REAPER, _NO_NEW_PRIVILEGES, _AMBIENT = 1, 4, 24, 36, 38, 47
_AMBIENT_CLEAR = 4
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}
_JOIN_SESSION_KEYRING = 1
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def enter_namespace(descriptor: int) -> None:
    """Enter this namespace; a pid namespace applies to later children."""
    _checked("setns", descriptor, 0)


def leave_namespaces(which: int) -> None:
    """Create new namespaces: `NEW_MOUNTS`, and `NEW_PIDS` for the next child."""
    _checked("unshare", which)


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount, with the arguments of the system call."""
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _checked("mount", *arguments[:3], ctypes.c_ulong(flags), arguments[3])


def die_with_parent(parent: int | None = None) -> None:
    """Ask to be killed when the parent ends. `parent`: its pid, to detect that it has ended already."""
    _checked("prctl", _DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants that lose their own."""
    _checked("prctl", _CHILD_REAPER, 1, 0, 0, 0)


def leave_keyring() -> None:
    """Join a session keyring without the user's keys; do nothing on machines whose system call is unknown."""
    call = _KEYCTL.get(os.uname().machine)
    if call is not None:
        _libc.syscall(call, _JOIN_SESSION_KEYRING, None)  # refused in some containers, which then have none


def set_undumpable() -> None:
    """Prevent other processes of the same user from inspecting this one, until it executes a program."""
    _checked("prctl", _DUMPABLE, 0, 0, 0, 0)


def give_up_privileges() -> None:
    """Drop all capabilities in this user namespace, and every way to gain one."""
    _checked("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _checked("prctl", _AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    for capability in range(64):
        if _libc.prctl(_DROP_BOUND, capability, 0, 0, 0) != 0:
            break  # the kernel knows no more of them
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked("capset", header, (ctypes.c_uint32 * 6)())


def _checked(function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function}: {os.strerror(error)}")
