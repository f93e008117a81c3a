"""The first process of a container: it starts a helper for each order of its runtime, which carries the order out.

`python -I -S first_process.py SOCKET --hostname NAME`, by bubblewrap; the name is there to find it by. It imports
nothing but the standard library. No process in the container can signal it, as it is process 1, or inspect it. The end
of the socket ends it, and so the container.
"""

import ctypes
import json
import os
import re
import resource
import select
import signal
import socket
import sys
from typing import Any, NoReturn

DESCRIPTORS = 16
"""The most that come with one message."""

INFO = 3
"""The descriptor by which a bubblewrap that runs a command names the first process of it."""

_DUMPABLE, _CHILD_SUBREAPER = 4, 36
_FIRST_OF_COMMAND = re.compile(rb'"child-pid": (\d+)')


def serve(wire: socket.socket) -> NoReturn:
    """Start a helper for each message: the connection of an order, and the descriptors of its command beside it."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(wire, 1, DESCRIPTORS)
        if not text:
            os._exit(0)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        connection = socket.socket(fileno=descriptors[0])
        try:
            helper = os.fork()
        except OSError as error:
            _answer(connection, fault=f"no command can be started: {error.strerror}")
        else:
            if helper == 0:
                _carry_out(connection, descriptors[1:])
        connection.close()
        for descriptor in descriptors[1:]:
            os.close(descriptor)


def _carry_out(connection: socket.socket, given: list[int]) -> NoReturn:
    """Carry out the order, a line of JSON that only this helper reads, because it may hold secrets; answer in JSON.

    `{"listen"}`, ports of 127.0.0.1: `{}` with the sockets. A command, see `_run`: `{"status"}`. `{"fault"}`: why not.
    """
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with connection.makefile("rb") as lines:
            order = json.loads(lines.readline())
        if "listen" in order:
            opened = [socket.create_server(("127.0.0.1", port), backlog=128) for port in order["listen"]]
            socket.send_fds(connection, [b"{}"], [each.fileno() for each in opened])
        else:
            _answer(connection, status=_run(connection, order, given))
    except BaseException as error:  # noqa: BLE001  reported, and the end of this process
        _answer(connection, fault=f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _run(connection: socket.socket, order: dict[str, Any], given: list[int]) -> int:
    """Run a command until it has ended or the runtime ends its side of the connection; return its exit status.

    The order: `argv`, `cwd`, `env`; `limits` by the names of resources; `alone`: the command that runs `argv` in a pid
    namespace of its own, all of which has then ended; or none. `given`: its descriptors 0, 1, 2 and further ones; each
    is larger than its number in the command.
    """
    os.chdir(order["cwd"])
    for name, value in order["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))
    argv = [*order["alone"], *order["argv"]]
    info, writing = os.pipe()
    if order["alone"]:
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)  # bubblewrap does not wait for what it runs
        given = [*given, writing]
    os.environ["PATH"] = order["env"].get("PATH", os.defpath)
    try:
        child = os.posix_spawnp(
            argv[0],
            argv,
            order["env"],
            file_actions=[(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(given)],
            setsid=True,
            setsigmask=(),
            setsigdef=signal.valid_signals(),
        )
    except OSError as error:
        os.write(given[2], f"{argv[0]}: {error.strerror}\n".encode())
        return 127 if isinstance(error, FileNotFoundError) else 126
    os.close(writing)
    ended = os.pidfd_open(child)
    ready = select.poll()
    ready.register(ended, select.POLLIN)
    ready.register(connection, select.POLLIN)
    if ended not in dict(ready.poll()):
        _end(child, info if order["alone"] else None)
    return _status_of(child)


def _end(child: int, info: int | None) -> None:
    """Kill the command; with its first process, all in its namespace, after which bubblewrap ends by itself."""
    if info is not None:
        found = _FIRST_OF_COMMAND.search(os.read(info, 4096))  # nothing, if bubblewrap has ended
        child = child if found is None else int(found[1])
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        return  # it is ending


def _status_of(child: int) -> int:
    """Wait until all children have ended."""
    status = 0
    while True:
        try:
            pid, ended = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if pid == child:
            code = os.waitstatus_to_exitcode(ended)
            status = code if code >= 0 else 128 - code


def _answer(connection: socket.socket, **answer: object) -> None:
    try:
        connection.sendall(json.dumps(answer).encode())
    except OSError:
        return  # the runtime asks no more


def main() -> NoReturn:
    """Serve on the socket whose descriptor is the first argument."""
    wire = socket.socket(fileno=int(sys.argv[1]))
    wire.set_inheritable(False)
    os.closerange(3, wire.fileno())  # of the bubblewraps
    os.closerange(wire.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    if ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0) != 0:
        sys.exit("the first process of the container cannot be protected from others")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nothing that has lost its parent is left of it
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what has no handler cannot end process 1
    serve(wire)


if __name__ == "__main__":
    main()
