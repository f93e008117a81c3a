"""Keeps a command's processes together, so that none of them outlives its work or the server.

Started by its path: `python -I -S keeper.py SERVER_PID -- COMMAND ...`. It runs the command in a session of its own and
exits with its status, 128 + signal where that killed it. Before it exits, because the command ended, it was told to
(SIGTERM, SIGINT, SIGHUP) or the server died, it kills everything that came of the command: on Linux also what left the
session or was orphaned, because the keeper is who inherits orphans; elsewhere the command's process group. Then it
removes the folder for temporary files that the command had to itself (`TMPDIR`).
"""

import contextlib
import ctypes
import os
import signal
import stat
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

_LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_AWAITED = {*_ENDING, signal.SIGCHLD}
_ROUND_S = 0.05
_NOT_STARTED = 127


def main() -> int:
    """Run the command; the exit status to end with."""
    server, separator, *command = sys.argv[1:]
    if separator != "--":
        sys.exit("usage: keeper.py SERVER_PID -- COMMAND ...")
    signal.signal(signal.SIGCHLD, lambda *_: None)  # where its default is to be ignored, it could not be waited for
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(server):
        return 128 + signal.SIGTERM  # the server died before its death could be asked for
    keeper = os.getpid()
    temporary = tempfile.mkdtemp(prefix="gepa-command-")
    pid = os.fork()
    if pid == 0:
        _become(command, keeper, {**os.environ, "TMPDIR": temporary})
    _let_go(0, os.O_RDONLY)
    _let_go(1, os.O_WRONLY)
    status = _wait_for(pid)
    _kill_all(pid)
    _remove(temporary)
    return status


def _become(command: list[str], keeper: int, environment: dict[str, str]) -> NoReturn:
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(128 + signal.SIGKILL)
        for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored_by_python, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        os.execvpe(command[0], command, environment)  # noqa: S606  # what it is for
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode(errors="replace"))
    finally:
        os._exit(_NOT_STARTED)


def _let_go(descriptor: int, mode: int) -> None:
    """Leave a pipe to the command alone, so that its other end hears when the command closes it."""
    nothing = os.open(os.devnull, mode)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def _wait_for(command: int) -> int:
    while True:
        received = signal.sigwait(_AWAITED)
        if received in _ENDING:
            return 128 + received
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == command:
                status = os.waitstatus_to_exitcode(ended[1])
                return status if status >= 0 else 128 - status


def _kill_all(command: int) -> None:
    if not _LINUX:
        _kill(os.killpg, command)
        return
    while _has_children():  # those of a child that dies become ours before it can be waited for
        for child in _children():
            group = os.getpgid(child)
            if group != os.getpgrp():
                _kill(os.killpg, group)  # so that nothing in it can fork any more, however fast it does
            _kill(os.kill, child)
        signal.sigtimedwait({signal.SIGCHLD}, _ROUND_S)


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    """Our children, none of which can vanish before we wait for it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[1]
            except (FileNotFoundError, ProcessLookupError):
                continue  # somebody else's, which has ended
            if int(parent) == os.getpid():
                found.append(int(entry.name))
    return found


def _kill(kill: Callable[[int, int], None], target: int) -> None:
    try:
        kill(target, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # it has ended, or it is another user's (`sudo`) and beyond us


def _remove(temporary: str) -> None:
    """Remove the folder, however deep it is and whatever its owner may not read; a failure changes nothing but is told.

    As in `rpc_server/worktrees/removal.py`, which is out of reach here: folders are moved beside each other first.
    """
    try:
        Path(temporary).chmod(stat.S_IRWXU)
        waiting = [temporary]
        while waiting:
            emptied = waiting.pop()
            with os.scandir(emptied) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        Path(entry.path).chmod(stat.S_IRWXU)  # else its owner cannot empty it, nor move it
                        aside = f"{temporary}.{uuid.uuid4().hex}"
                        Path(entry.path).rename(aside)
                        waiting.append(aside)
                    else:
                        Path(entry.path).unlink()
            Path(emptied).rmdir()
    except OSError as error:
        with contextlib.suppress(OSError):  # nobody may be there to be told
            os.write(2, f"cannot remove {error.filename}: {error.strerror}\n".encode(errors="replace"))


def _prctl(option: int, value: int) -> None:
    if _LINUX and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


if __name__ == "__main__":
    sys.exit(main())
