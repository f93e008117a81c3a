"""What every fork of the doorman begins with: its orders, and nothing of the doorman's but that."""

import json
import os
import signal
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

Child = Callable[[], None]
"""What a forked process does; where it returns, so does the interpreter's main program."""

_SCORE = 500

FAILED = 125
"""The status of a process that could not do what it was forked for, as that of `docker run`."""


def read_order(descriptor: int) -> Any:
    """The JSON document in a file, which the doorman itself never reads: it may hold secrets."""
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


def prefer_to_end() -> None:
    """Where the machine runs out of memory, the sandboxes go first."""
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
    """Be this user with the group of the same number, and no other; None: stay who it is."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def signals_as_new() -> None:
    """As in a process that a shell starts: nothing handled, ignored or blocked."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # one of those that the C library keeps for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def wait_for(child: int, ending: signal.Signals) -> NoReturn:
    """End as the child does; at SIGTERM send it `ending` first. SIGTERM must be blocked since before the fork."""
    signals = {signal.SIGTERM, signal.SIGCHLD}
    while True:
        waited, status = os.waitpid(child, os.WNOHANG)
        if waited == child:
            os._exit(exit_status(status))
        if signal.sigwait(signals) == signal.SIGTERM:
            os.kill(child, ending)


def reap_until(child: int) -> NoReturn:
    """Wait for whatever ends, as the first process of a pid namespace must, and end as `child` does."""
    while True:
        waited, status = os.wait()
        if waited == child:
            os._exit(exit_status(status))


def exit_status(status: int) -> int:
    """The exit status, 128 + signal where a signal ended it, of what `wait` told."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def fail(error: BaseException, descriptor: int = 2) -> NoReturn:
    """End, having said why where the sandbox's log is."""
    os.write(descriptor, f"{type(error).__name__}: {error}\n".encode())
    os._exit(FAILED)
