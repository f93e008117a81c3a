"""Run a command, and end with everything that it started.

    python -I -S process_reaper.py [OPTION ...] -- COMMAND [ARGUMENT ...]

    --owner=PID        end when this process, the parent, ends; without it the command may outlive its parent
    --folder=PATH      run the command in this folder
    --memory=BYTES     limit the private memory of each process
    --file-size=BYTES  limit the size of each file that is written
    --processes=N      limit how many processes this user has
    --listening=FD     pass this descriptor to the command as descriptor 3
    --mark=NAME        a name to find this process by
    --temporary        give the command a folder for temporary files (`TMPDIR`), and remove it at the end

The exit status is the command's: 128 + signal if a signal ended it, 126 or 127 if it cannot be run. When the command
ends, on SIGTERM, SIGINT or SIGHUP, and when the owner ends, all descendants of the command are killed first.
On Linux orphans become children of this process (a subreaper, prctl(2)), so that none escapes, in whichever session it
is; elsewhere the command's process group is killed. Standard library only, and few imports: it starts for each command.
"""

import ctypes
import errno
import os
import resource
import signal
import sys
import time

TYPE_CHECKING = False  # importing typing would take longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Callable

KILL_TIMEOUT_S = 20.0
"""How long processes that cannot be killed are waited for."""

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_END_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_OWNER_POLL_S = 2.0
_KILL_PAUSE_S = 0.01
_ROUNDS_WITHOUT_PAUSE = 50
_CANNOT_RUN, _NOT_FOUND = 126, 127


def main() -> None:
    """Run the command of `sys.argv`; never returns."""
    separator = sys.argv.index("--")
    options = dict(argument[2:].partition("=")[::2] for argument in sys.argv[1:separator])
    command = sys.argv[separator + 1 :]
    listening = int(options.get("listening", -1))
    owner = int(options["owner"]) if "owner" in options else None
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an inherited "ignore" would leave nothing to wait for
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if owner is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != owner:
            os._exit(128 + signal.SIGTERM)
    temporary = _make_temporary() if "temporary" in options else None
    reaper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(command, options, listening, temporary, reaper)
    null = os.open(os.devnull, os.O_RDWR)
    # The command alone holds its pipes, so that their other end notices when it closes them.
    for descriptor in (0, 1) if temporary else (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, max(null, listening) + 1)
    status = _wait_and_kill(pid, owner)
    if temporary is not None:
        _remove(temporary)
    os._exit(status if status >= 0 else 128 - status)


def _become(command: list[str], options: dict[str, str], listening: int, temporary: str | None, reaper: int) -> None:
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != reaper:
            os._exit(128 + signal.SIGKILL)
        if "folder" in options:
            os.chdir(options["folder"])
        # Not RLIMIT_AS: it counts memory that is reserved and never used; Node and Go reserve gigabytes.
        _limit(resource.RLIMIT_DATA, options.get("memory"))
        _limit(resource.RLIMIT_FSIZE, options.get("file-size"))
        _limit(resource.RLIMIT_NPROC, options.get("processes"))
        _limit(resource.RLIMIT_CORE, "0")
        if listening >= 0:
            os.dup2(listening, 3)
            if listening != 3:
                os.close(listening)
        for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored_by_python, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        environment = os.environ if temporary is None else {**os.environ, "TMPDIR": temporary}
        os.execvpe(command[0], command, environment)  # noqa: S606  the purpose of this program
    except OSError as error:
        # The statuses of a shell.
        status = _NOT_FOUND if isinstance(error, (FileNotFoundError, NotADirectoryError)) else _CANNOT_RUN
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(status)


def _limit(kind: int, most: str | None) -> None:
    if most is None:
        return
    _, hard = resource.getrlimit(kind)
    if hard == resource.RLIM_INFINITY or int(most) < hard:
        resource.setrlimit(kind, (int(most), int(most)))


def _wait_and_kill(command: int, owner: int | None) -> int:
    """Return the exit status once the command and all its descendants have ended; -N if signal N was to end them."""
    status: int | None = None
    received: int | None = None
    while status is None and received not in _END_SIGNALS and owner in (None, os.getppid()):
        received = _wait_for_signal(_OWNER_POLL_S)
        status = _collect(command)[0]
    deadline, rounds = time.monotonic() + KILL_TIMEOUT_S, 0
    while True:
        ended, running = _collect(command)
        status = ended if status is None else status
        if not running or time.monotonic() > deadline:
            break
        _kill_descendants(command)
        rounds += 1
        if rounds > _ROUNDS_WITHOUT_PAUSE:  # a process that forks without pause is killed without pause
            _wait_for_signal(_KILL_PAUSE_S)
    if received is not None and received in _END_SIGNALS:
        return -received
    return 128 + signal.SIGKILL if status is None else status


def _wait_for_signal(seconds: float) -> int | None:
    signals = {*_END_SIGNALS, signal.SIGCHLD}
    if not _LINUX:
        return signal.sigwait(signals)  # which other systems have without a time limit only
    received = signal.sigtimedwait(signals, seconds)
    return None if received is None else received.si_signo


def _collect(command: int) -> tuple[int | None, bool]:
    """Wait for ended children; return the command's exit status if it is among them, and whether any child remains."""
    status: int | None = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if pid == 0:
            return status, True
        if pid == command:
            code = os.waitstatus_to_exitcode(ended)
            status = code if code >= 0 else 128 - code


def _kill_descendants(command: int) -> None:
    if not _LINUX:
        _signal(os.killpg, command)
        return
    parents = [os.getpid()]
    while parents:
        parent = parents.pop()
        for pid in _children(parent):
            _kill(pid, parent)
            parents.append(pid)


def _kill(pid: int, parent: int) -> None:
    """Kill a process unless its pid has become another's; one with a new parent is found in the next round."""
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ENOSYS:  # some container kernels
            _signal(os.kill, pid)
        return
    try:
        if _parent_of(str(pid)) == parent:
            signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH, errno.EPERM):
            raise
    finally:
        os.close(process)


def _signal(kill: "Callable[[int, int], None]", target: int) -> None:
    try:
        kill(target, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # it has ended, or belongs to another user (`sudo`)


def _children(parent: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208  importing pathlib takes longer than this
            with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:  # noqa: PTH123  as above
                found += map(int, file.read().split())
    except OSError:
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # noqa: PTH110  as above
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent_of(name) == parent]  # noqa: PTH208
    return found  # the children of a process that has ended are this process's by now


def _parent_of(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  as above
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def _make_temporary() -> str:
    folder = f"{os.environ.get('TMPDIR') or '/tmp'}/gepa-command-{os.urandom(8).hex()}"  # noqa: S108  a new folder
    os.mkdir(folder, 0o700)  # noqa: PTH102  as above
    return folder


def _remove(folder: str) -> None:
    """Remove a folder of any depth and any modes."""
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        try:
            os.rmdir(folder)  # noqa: PTH106  as above; mostly it is empty
        except FileNotFoundError:
            return
        except OSError:
            os.spawnvp(os.P_WAIT, command[0], [*command, "--", folder])  # noqa: S606  no shell
    if os.path.lexists(folder):
        os.write(2, f"cannot remove {folder}\n".encode(errors="replace"))


def _prctl(option: int, value: int) -> None:
    if _LINUX and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        sys.exit(f"prctl({option}, {value}): {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
