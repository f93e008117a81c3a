"""The processes that the daemon forks: bubblewrap, and those that finish mounts, open sockets and run commands."""

import contextlib
import fcntl
import importlib
import locale
import os
import resource
import signal
import socket
import stat
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from sandbox_runtime.backends.bubblewrap.supervisor import forked_process, seccomp

_STAGE = "/tmp"  # noqa: S108  covered by a mount of this process's own before anything is put there


@dataclass(frozen=True)
class ContainerPipes:
    """The pipes of a container: closing `stdin` ends it, `up` receives a line when it is up, `info` its first pid."""

    stdin: int
    up: int
    info: int
    log: int


def become_bubblewrap(order: int, ends: ContainerPipes, daemon: int) -> NoReturn:
    """Execute bubblewrap.

    The order: `argv`, in which `["info"]` stands for the descriptor of `info`, `["text", T]` for one that T can be read
    from, and `["shown", P]` for a path by which the container's user reaches P; `user`, None to keep this one;
    `groups`, the files by which to join its control groups.
    """
    try:
        fields = forked_process.read_order(order)
        forked_process.raise_oom_score()
        forked_process.join([os.open(path, os.O_WRONLY) for path in fields["groups"]])
        if fields["user"] is not None:
            _stage(fields["argv"])
        argv = [_resolved(part, ends) for part in fields["argv"]]
        forked_process.become_user(fields["user"])
        forked_process.die_with_parent(daemon)
        for descriptor, number in ((ends.stdin, 0), (ends.up, 1), (ends.log, 2)):
            os.dup2(descriptor, number)
        os.set_inheritable(ends.info, True)
        forked_process.signals_as_new()
        os.execve(argv[0], argv, {})  # noqa: S606  no shell
    except BaseException as error:  # noqa: BLE001  logged, and the end of this process
        forked_process.fail(error, ends.log)


def _stage(argv: list[Any]) -> None:
    """Mount what is to be visible where every user may go, in own mounts: /root, for example, admits no other user."""
    shown = [part for part in argv if isinstance(part, list) and part[0] == "shown"]
    forked_process.leave_namespaces(forked_process.NEW_MOUNTS)
    forked_process.mount("none", "/", None, forked_process.RECURSIVE | forked_process.PRIVATE)
    sources = [os.open(part[1], os.O_PATH) for part in shown]
    forked_process.mount(
        "tmpfs", _STAGE, "tmpfs", forked_process.NO_SUID | forked_process.NO_DEVICES, "mode=0755,size=1m"
    )
    for number, (part, source) in enumerate(zip(shown, sources, strict=True)):
        place = f"{_STAGE}/{number}"
        if stat.S_ISDIR(os.fstat(source).st_mode):  # its path may be hidden by now
            os.mkdir(place, 0o755)  # noqa: PTH102  cheaper, and this is after a fork
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
        forked_process.mount(f"/proc/self/fd/{source}", place, None, forked_process.BIND | forked_process.RECURSIVE)
        os.close(source)
        part[1] = place


def _resolved(part: Any, ends: ContainerPipes) -> str:
    if isinstance(part, str):
        return part
    if part[0] == "info":
        return str(ends.info)
    if part[0] == "text":
        file = os.memfd_create("text", 0)
        os.write(file, part[1].encode())
        os.lseek(file, 0, os.SEEK_SET)
        return str(file)
    return str(part[1])


_KINDS = ("net", "ipc", "uts", "cgroup", "pid", "mnt")


def finish_mounts(process: int, order: int, log: int) -> NoReturn:
    """Make the folders of the workspace, and mount some over `/tmp` and others, so that all writing is limited.

    The order: `user`; `folders` to make; `covers`, pairs of a folder and the place where it is also mounted; `mounts`,
    places of mounts that must stay visible there; `aside`, the path that they are moved to meanwhile.
    """
    try:
        fields = forked_process.read_order(order)
        _go_inside(process, fields["user"], ("mnt",))
        os.umask(0o022)
        for folder in fields["folders"]:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103  cheaper, and this is after a fork
        covered = [
            path for path in fields["mounts"] if any(path.startswith(f"{place}/") for _, place in fields["covers"])
        ]
        for number, path in enumerate(covered):
            aside = f"{fields['aside']}{number}"
            _like(path, aside)
            forked_process.mount(path, aside, None, forked_process.BIND | forked_process.RECURSIVE)
        for folder, place in fields["covers"]:
            forked_process.mount(folder, place, None, forked_process.BIND)
        for number, path in enumerate(covered):
            aside = f"{fields['aside']}{number}"
            _like(aside, path)
            forked_process.mount(aside, path, None, forked_process.MOVE)
            (os.rmdir if os.path.isdir(aside) else os.unlink)(aside)  # noqa: PTH112  as above
    except BaseException as error:  # noqa: BLE001  logged, and the end of this process
        forked_process.fail(error, log)
    os._exit(0)


def open_sockets(process: int, order: int, reply: int) -> NoReturn:
    """Listen on ports of the container's own 127.0.0.1, and send the sockets by `reply`.

    The order: `user`; `listen`, the ports.
    """
    try:
        fields = forked_process.read_order(order)
        _go_inside(process, fields["user"], ("net",))
        listening = [socket.create_server(("127.0.0.1", port), backlog=128) for port in fields["listen"]]
        wire = socket.socket(fileno=reply)
        socket.send_fds(wire, [b"."], [one.fileno() for one in listening])
    except BaseException as error:  # noqa: BLE001  as above
        forked_process.fail(error, reply)
    os._exit(0)


def run_command(process: int, order: int, given: list[int]) -> forked_process.Child:
    """Run a command in the container while this process waits; return in the command's process only.

    `given`: its descriptors 0, 1, 2 and further ones. The order: `user`; `groups`; `argv`, `cwd`, `env`; `limits` by
    the names of resources; `alone`: in a pid namespace of its own, so that nothing of it is left; `warm`: the function
    (`a.b`, `c`) to call in this interpreter instead of executing `argv`, or None.

    There are three processes between the daemon and a command that is alone: this one is outside; its child is in the
    container's pid namespace, which is needed only because a process creates a pid namespace below its own; and the
    child of that is the first process of the command's own pid namespace.
    """
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
        fields = forked_process.read_order(order)
        forked_process.raise_oom_score()
        groups = [os.open(path, os.O_WRONLY) for path in fields["groups"]]
        inner = _go_inside(process, fields["user"], _KINDS)
        _fork_here(signal.SIGTERM if fields["alone"] else signal.SIGKILL)
        if fields["alone"]:
            forked_process.leave_namespaces(forked_process.NEW_PIDS | forked_process.NEW_MOUNTS)
            _fork_here(signal.SIGKILL)
            forked_process.mount("none", "/", None, forked_process.RECURSIVE | forked_process.PRIVATE)
            flags = forked_process.NO_SUID | forked_process.NO_DEVICES | forked_process.NO_EXEC
            forked_process.mount("proc", "/proc", "proc", flags)
            child = os.fork()
            if child:
                _stay_small(inner, (*groups, *given))
                forked_process.reap_until(child)
        forked_process.join(groups)
        _be_ordinary(inner)
        forked_process.die_with_parent()  # the kernel may forget it where capabilities change
    except BaseException as error:  # noqa: BLE001  as above
        forked_process.fail(error, given[2])
    return _ready(fields, given)


def _fork_here(ending: signal.Signals) -> None:
    """Continue in a child; this process exits as that does, and sends it `ending` on SIGTERM."""
    child = os.fork()
    if child:
        forked_process.close_all_but(())
        forked_process.give_up_privileges()
        forked_process.wait_for(child, ending)
    forked_process.die_with_parent()


def _go_inside(process: int, user: int | None, kinds: tuple[str, ...]) -> int | None:
    """Enter these namespaces of a process, given by its folder in /proc, with all capabilities in them.

    bubblewrap makes its namespaces in one user namespace and runs the command in another one below it: the descriptor
    of that one is returned for `_be_ordinary`, None if there is none. No capability reaches from there to the others.
    """
    opened = [os.open(f"ns/{kind}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process) for kind in kinds]
    owner = fcntl.ioctl(opened[0], forked_process.OWNER_OF_NAMESPACE)
    inner = os.open("ns/user", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    forked_process.become_user(user)
    # It has capabilities, and the file of its program is a file of the host that can be written to.
    forked_process.set_undumpable()
    forked_process.enter_namespace(owner)
    for descriptor in opened:
        forked_process.enter_namespace(descriptor)
        os.close(descriptor)
    forked_process.set_undumpable()  # entering may have changed it
    same = os.fstat(owner).st_ino == os.fstat(inner).st_ino
    os.close(owner)
    os.close(process)
    if same:
        os.close(inner)
        return None
    return inner


def _be_ordinary(inner: int | None) -> None:
    """Give up every capability over the container."""
    if inner is not None:
        forked_process.enter_namespace(inner)
        os.close(inner)
    forked_process.give_up_privileges()


def _stay_small(inner: int | None, others: tuple[int, ...]) -> None:
    for descriptor in others:
        os.close(descriptor)
    _be_ordinary(inner)


def _ready(fields: Any, given: list[int]) -> forked_process.Child:
    """Set up what is the command's own, and return the command."""
    _place(given)
    try:
        seccomp.install_filter()
        forked_process.close_all_but(range(len(given)))
        forked_process.signals_as_new()
        os.setsid()
        os.umask(0o022)
        os.chdir(fields["cwd"])
        for name, value in fields["limits"].items():
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (bound, bound))
        if fields["warm"] is None:
            return lambda: _execute(fields["argv"], fields["env"])
    except BaseException as error:  # noqa: BLE001  as above
        forked_process.fail(error)
    os.environ.clear()
    os.environ.update(fields["env"])
    return lambda: _call(fields["warm"], fields["argv"])


def _place(given: list[int]) -> None:
    """Duplicate the descriptors to 0, 1, 2 and further ones."""
    start = max(*given, len(given)) + 1
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, start) for descriptor in given]
    for number, descriptor in enumerate(high):
        os.dup2(descriptor, number)


def _execute(argv: list[str], env: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606  no shell
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _call(function: tuple[str, str], argv: list[str]) -> None:
    _as_a_new_interpreter()
    sys.argv[:] = argv
    getattr(importlib.import_module(function[0]), function[1])()


def _as_a_new_interpreter() -> None:
    """Do what Python does at its start: set signals, and read the time zone and locale from the environment.

    A write to a closed connection must be an error, not SIGPIPE, which would end the process.
    """
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    time.tzset()
    with contextlib.suppress(locale.Error):  # a new interpreter stays in the C locale then
        locale.setlocale(locale.LC_CTYPE, "")


def _like(path: str, place: str) -> None:
    """Make a mount point at `place`: a folder for a folder, a file for a file."""
    if os.path.isdir(path):  # noqa: PTH112  as above
        os.makedirs(place, exist_ok=True)  # noqa: PTH103  as above
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120  as above
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
