"""The first process of a container: it opens listening sockets and runs commands, as its runtime orders by a socket.

`python -I -S first_process.py SOCKET --hostname NAME`, by bubblewrap; the name is there to find it by. It imports
nothing but the standard library. No process in the container can signal it, as it is process 1, or inspect it. The end
of the socket ends it, and so the container.
"""

import ctypes
import fcntl
import json
import os
import re
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

MESSAGE_BYTES = 65536
DESCRIPTORS = 16

INFO = "info"
"""The word in a command's `alone` that stands for the descriptor of a file that gets the command's first process."""

FAILED = 125
"""The exit status of a process that could not do its work, as of `docker run`."""

_DUMPABLE = 4
_FIRST_OF_COMMAND = re.compile(rb'"child-pid": (\d+)[\s,]')
_PAUSE_S = 0.005


class FirstProcess:
    """Carries out orders. Messages are JSON objects with descriptors beside them.

    From the runtime: `{"run"}` with an order, see `_execute`, and the command's descriptors; `{"listen", "run"}`, ports
    of 127.0.0.1; `{"stop", "run"}`, of a command that is alone. To the runtime: `{}` at the start; `{"run", "status"}`
    when a command and, if it was alone, everything that it started has ended; `{"listen"}`, the number of the order,
    with the sockets, or why there are none as `"fault"`.
    """

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._runs: dict[int, int] = {}
        self._of_alone: dict[int, int] = {}
        self._ending: dict[int, tuple[int, int]] = {}

    def serve(self) -> NoReturn:
        """Serve until the runtime closes the socket."""
        woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what has no handler cannot end process 1
        ready = select.poll()
        ready.register(self._wire, select.POLLIN)
        ready.register(woken, select.POLLIN)
        self._send({})
        while True:
            for descriptor, _ in ready.poll():
                if descriptor == woken:
                    os.read(woken, 4096)
                    self._reap()
                else:
                    self._read()

    def _read(self) -> None:
        text, descriptors, _, _ = socket.recv_fds(self._wire, MESSAGE_BYTES, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not text:
            os._exit(0)
        message = json.loads(text)
        if "listen" in message:
            self._listen(message)
        elif "stop" in message:
            self._stop(message["run"])
        else:
            self._run(message["run"], *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _listen(self, message: dict[str, Any]) -> None:
        try:
            opened = [socket.create_server(("127.0.0.1", port), backlog=128) for port in message["listen"]]
        except OSError as error:
            self._send({"listen": message["run"], "fault": str(error)})
            return
        self._send({"listen": message["run"]}, *(each.fileno() for each in opened))
        for each in opened:
            each.close()

    def _run(self, run: int, order: int, *given: int) -> None:
        first = os.memfd_create("first", 0)  # gets the first process of a command that is alone
        try:
            child = os.fork()
        except OSError as error:
            os.write(given[2], f"no command can be started: {error.strerror}\n".encode())
            self._send({"run": run, "status": FAILED})
            os.close(first)
            return
        if child == 0:
            _execute(order, first, given)
        self._runs[child], self._of_alone[run] = run, first

    def _stop(self, run: int) -> None:
        """Kill the first process of a command's own pid namespace, and so all in it; bubblewrap then ends by itself."""
        while run in self._runs.values():
            first = self._first_of(run)
            if first is not None:
                os.kill(first, signal.SIGKILL)
                return
            time.sleep(_PAUSE_S)  # bubblewrap has just been started
            self._reap()

    def _reap(self) -> None:
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if child == 0:
                return
            run = self._runs.pop(child, None)
            if run is not None:
                code = os.waitstatus_to_exitcode(status)
                ended = (run, code if code >= 0 else 128 - code)
                first = self._first_of(run)
                os.close(self._of_alone.pop(run))
                if first is not None and _exists(first):  # bubblewrap does not wait for it
                    self._ending[first] = ended
                    continue
            elif child in self._ending:
                ended = self._ending.pop(child)
            else:
                continue  # one that has lost its parent
            self._send({"run": ended[0], "status": ended[1]})

    def _first_of(self, run: int) -> int | None:
        found = _FIRST_OF_COMMAND.search(os.pread(self._of_alone[run], 4096, 0))
        return None if found is None else int(found[1])

    def _send(self, message: dict[str, Any], *descriptors: int) -> None:
        try:
            socket.send_fds(self._wire, [json.dumps(message).encode()], descriptors)
        except OSError:  # the runtime is gone
            os._exit(0)


def _execute(order: int, first: int, given: tuple[int, ...]) -> NoReturn:
    """Become a command. Only this process reads the order, because it may hold secrets.

    The order: `argv`, `cwd`, `env`; `limits` by the names of resources; `alone`: the command that runs `argv` in a pid
    namespace of its own, so that nothing of it is left; or none. `given`: its descriptors 0, 1, 2 and further ones.
    """
    program = ""
    try:
        with os.fdopen(order, "rb") as file:
            file.seek(0)
            fields = json.load(file)
        start = max(*given, first, order, len(given)) + 1
        first, *given_high = (fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, start) for one in (first, *given))
        for number, descriptor in enumerate(given_high):
            os.dup2(descriptor, number)
        argv = fields["argv"]
        if fields["alone"]:
            argv = [*(str(len(given)) if word == INFO else word for word in fields["alone"]), *argv]
            os.dup2(first, len(given))
        os.closerange(len(given) + bool(fields["alone"]), os.sysconf("SC_OPEN_MAX"))
        _reset_signals()
        os.setsid()
        os.chdir(fields["cwd"])
        for name, value in fields["limits"].items():
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (bound, bound))
        program = argv[0]
        os.execvpe(program, argv, fields["env"])  # noqa: S606  no shell
    except BaseException as error:  # noqa: BLE001  logged, and the end of this process
        why = error.strerror if program and isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        os.write(2, f"{program or 'no command'}: {why}\n".encode())
        os._exit(FAILED if not program else 127 if isinstance(error, FileNotFoundError) else 126)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _reset_signals() -> None:
    """Reset signals as in a process that a shell starts: none handled, ignored or blocked."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # one of those that the C library keeps for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def main() -> NoReturn:
    """Serve on the socket whose descriptor is the first argument."""
    wire = socket.socket(fileno=int(sys.argv[1]))
    wire.set_inheritable(False)
    if ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0) != 0:
        sys.exit("the first process of the container cannot be protected from others")
    FirstProcess(wire).serve()


if __name__ == "__main__":
    main()
