"""Run `evolverpc` and `evolverpc serve` by forking a process that has imported them already.

Importing the commands, the optimizer and litellm takes seconds of CPU, and the suites run hundreds of commands. One
process imports them once and forks itself for each command of all test workers; that command's optimizer process is a
fork of the same one. Apart from the imports, they are what `python -m gepa_client`, `python -m rpc_server` and `python
-m gepa_client.run.driver_main` start: processes with their own folder, environment, session and standard streams.

Processes that are under test themselves (how they start, what they import, how signals end them) are not started this
way: `tests/rpc_server/cli`, the commands that are killed and the suites that test no package start them as a user does.
"""

import atexit
import fcntl
import gc
import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest.mock import patch

from pydantic import BaseModel
from typer.main import get_command

from sandbox_runtime import server_process
from sandbox_runtime.api.sandbox import ProcessEndpoint

HASH_SEED = "0"
"""Of the forked processes: the one that the optimizer's process has."""
MESSAGE_BYTES = 1 << 18
MOST_STREAMS = 4
"""The standard streams and one of events."""
ITS_SOCKET = 3
"""The descriptor of a driver that is launched ahead."""
COMMAND = "gepa_client"
SERVER = "rpc_server"
SCRIPT = "-c"
DRIVER = "gepa_client.run.driver_main"
TIMEOUT_S = 90.0
"""Of one command, and of the end of the server."""


forked_s = 0.0
"""Seconds of processor time of the forked processes that this one has waited for."""


class ForkedProcess:
    """A process forked by the server at `address`, with the methods of `subprocess.Popen` that its users need."""

    def __init__(
        self,
        address: str,
        module: str,
        arguments: Sequence[str],
        *,
        folder: str,
        environment: Mapping[str, str],
        streams: Sequence[int],
        session: bool = False,
    ) -> None:
        self.args = [module, *arguments]
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(f"\0{address}")
        request = [module, list(arguments), folder, dict(environment), session]
        socket.send_fds(self._connection, [json.dumps(request).encode()], streams)
        self.pid = int(self._connection.recv(64))

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status, negative if a signal ended it, as `subprocess.Popen.wait` does."""
        if self.returncode is None:
            readable, _, _ = select.select([self._connection], [], [], timeout)
            if not readable:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            status, seconds = self._connection.recv(64).split()
            self.returncode = os.waitstatus_to_exitcode(int(status))
            self._connection.close()
            global forked_s
            forked_s += float(seconds)
        return self.returncode

    def poll(self) -> int | None:
        """Return its exit status as `wait` does, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def terminate(self) -> None:
        """Send it SIGTERM; nothing if it has ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once; nothing if it has ended."""
        self._signal(signal.SIGKILL)
        self.wait(TIMEOUT_S)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """The process that has imported everything, at this address."""

    def __init__(self, address: str) -> None:
        self.address = address

    @classmethod
    def shared(cls, folder: Path, owner: int) -> "ForkServer":
        """Return the one that is named in the folder; start it if there is none. It ends with the process `owner`."""
        named = folder / "fork-server"
        with named.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not named.read_text():
                named.write_text(cls.started(owner, "litellm", "openai").address)
        return cls(named.read_text())

    @classmethod
    def started(cls, owner: int, *libraries: str) -> "ForkServer":
        """Start one that has imported these libraries besides. It ends with the process `owner`."""
        address = f"evolverpc-tests-{uuid.uuid4().hex}"
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, address, str(owner), *libraries],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": HASH_SEED, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"ready\n"
        process.wait(TIMEOUT_S)
        return cls(address)

    def forking_subprocess(self) -> SimpleNamespace:
        """Return what `gepa_client.run.supervisor` is to use as `subprocess`, so that its drivers are forks."""
        return _forking_subprocess(self.address)

    def run(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        stdin: bytes = b"",
        timeout_s: float = TIMEOUT_S,
        module: str = COMMAND,
    ) -> tuple[int, bytes, bytes]:
        """Run `evolverpc ARGUMENTS`, or another module, to its end; return its exit status, stdout and stderr."""
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as stderr,
        ):
            given.write(stdin)
            given.seek(0)
            streams = (given.fileno(), stdout.fileno(), stderr.fileno())
            process = ForkedProcess(
                self.address, module, arguments, folder=str(folder), environment=environment, streams=streams
            )
            try:
                status = process.wait(timeout_s)
            finally:
                process.kill()
            stdout.seek(0)
            stderr.seek(0)
            return status, stdout.read(), stderr.read()

    def run_script(self, script: str, *, folder: Path, environment: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        """Run a script that imports the client or litellm; return its exit status, stdout and stderr."""
        return self.run([script], folder=folder, environment=environment, module=SCRIPT)

    @contextmanager
    def running_server(
        self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Iterator[ProcessEndpoint]:
        """Run `evolverpc serve ARGUMENTS` while the block runs, as `sandbox_runtime.running_server` does."""
        forking = SimpleNamespace(**vars(subprocess))
        forking.Popen = self._popen
        with ExitStack() as block:
            with patch.object(server_process, "subprocess", forking):
                endpoint = block.enter_context(server_process.running_server(arguments, env=env, cwd=cwd))
            yield endpoint

    def _popen(
        self,
        arguments: Sequence[str],
        *,
        stdout: IO[bytes],
        stderr: IO[bytes],
        cwd: Path | None,
        env: dict[str, str],
        **_: Any,
    ) -> ForkedProcess:
        with open(os.devnull) as stdin:  # noqa: PTH123  a descriptor is needed
            streams = (stdin.fileno(), stdout.fileno(), stderr.fileno())
            folder = str(cwd or Path.cwd())
            return ForkedProcess(
                self.address, SERVER, arguments, folder=folder, environment=env, streams=streams, session=True
            )


def serve(address: str, owner: int, *libraries: str) -> None:
    """Import the commands and the libraries; fork a process for each request; return when the process `owner` ends."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(f"\0{address}")  # a name without a file
    listening.listen(64)
    _preload(libraries)
    print("ready", flush=True)
    events = selectors.DefaultSelector()
    ended = os.pidfd_open(owner)
    events.register(ended, selectors.EVENT_READ)
    events.register(listening, selectors.EVENT_READ)
    spent: Counter[int] = Counter()
    """Seconds of processor time of what has ended, by the process that had asked for it."""
    while True:
        for key, _ in events.select():
            if key.fd == ended:
                return
            if key.fileobj is listening:
                connection, _ = listening.accept()
                events.register(connection, selectors.EVENT_READ)
            elif isinstance(key.fileobj, socket.socket):
                events.unregister(key.fileobj)
                if (pid := _fork(key.fileobj, address)) is not None:
                    events.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, key.fileobj))
            else:
                events.unregister(key.fileobj)
                os.close(key.fd)
                pid, connection = key.data
                _, status, used = os.wait4(pid, 0)
                seconds = used.ru_utime + used.ru_stime + spent.pop(pid, 0.0)
                asking, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                spent[asking] += seconds
                with connection, suppress(OSError):  # who asked may have ended first
                    connection.send(f"{status} {seconds}".encode())


def _preload(libraries: Sequence[str]) -> None:
    gc.disable()  # looking for garbage takes a quarter of the imports' time
    for name in libraries:
        import_module(name)

    import gepa_client.check.server_check
    import gepa_client.journal.sqlite
    import gepa_client.run.driver
    import gepa_client.run.replay_run  # noqa: F401
    import rpc_server.cli.serve  # noqa: F401
    from gepa_client.cli import app

    for name in app.WITH_SETTINGS:
        import_module(f"gepa_client.cli.commands.{app.MODULES.get(name, name)}")
    built = {name: _with_parsers(get_command(app.build(name))) for name in (None, *app.COMMANDS)}
    build = app.build
    app.build = lambda name: built[name] if name in built else build(name)  # type: ignore[assignment,return-value]
    for model in {*_models(BaseModel)}:
        if model.__module__.startswith(("gepa_client.", "protocol.", "evolverpc_common.", "rpc_server.")):
            model.model_rebuild()  # each process would build those that are built at their first use
    assert threading.active_count() == 1, "a fork has the main thread only"
    gc.collect()
    gc.freeze()
    gc.enable()


def _with_parsers(command: Any) -> Any:
    """Return the command of typer; its parameters have what parses them, which is made at their first use."""
    for each in (command, *getattr(command, "commands", {}).values()):
        for parameter in each.params:
            parameter.get_runtime_param()
    return command


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _fork(connection: socket.socket, address: str) -> int | None:
    """Fork a process for the request of this connection; return its number, or None if the other end has closed."""
    message, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, MOST_STREAMS)
    if not message:
        connection.close()
        return None
    pid = os.fork()
    if pid == 0:
        _become(json.loads(message), streams, address)
    for descriptor in streams:
        os.close(descriptor)
    connection.send(str(pid).encode())
    return pid


def _become(request: list[Any], streams: list[int], address: str) -> None:
    """Be the process that was asked for; never return."""
    status = 1
    try:
        module, arguments, folder, environment, session = request
        if session:
            os.setsid()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # it may be another one in this environment
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(len(streams), 1 << 20)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        match module:
            case "gepa_client.run.driver_main":
                status = _driver(arguments)
            case "gepa_client":
                status = _command(folder, arguments, address)
            case "rpc_server":
                status = _server(arguments)
            case _:
                status = _script(folder, arguments)
    finally:
        os._exit(status)


def _driver(arguments: list[str]) -> int:
    """Be what `python -P -m gepa_client.run.driver_main ARGUMENTS` is."""
    from gepa_client.run import driver_main

    sys.argv = [driver_main.__file__, *arguments]
    try:
        return driver_main.main()
    except BaseException:  # noqa: BLE001  as the interpreter does
        traceback.print_exc()
        return 1
    finally:
        sys.stderr.flush()


def _command(folder: str, arguments: list[str], address: str) -> int:
    """Be what `python -m gepa_client ARGUMENTS` is; return the exit status."""
    import gepa_client
    from gepa_client.cli import main
    from gepa_client.run import supervisor

    sys.path.insert(0, folder)
    sys.argv = [str(Path(gepa_client.__file__).with_name("__main__.py")), *arguments]
    supervisor.subprocess = _forking_subprocess(address)  # type: ignore[attr-defined]
    return _status_of(main)


def _server(arguments: list[str]) -> int:
    """Be what `python -I -m rpc_server ARGUMENTS` is; return the exit status."""
    from rpc_server.cli.serve_command import run

    sys.argv = ["gepa-server", *arguments]
    return _status_of(lambda: run(arguments))


def _script(folder: str, arguments: list[str]) -> int:
    """Be what `python -c SCRIPT` is; return the exit status."""
    sys.path.insert(0, folder)
    sys.argv = [SCRIPT]
    return _status_of(lambda: exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"}))  # noqa: S102


def _status_of(run: Callable[[], None]) -> int:
    """Run to the very end, as an interpreter does; return the exit status."""
    status: object = 0
    try:
        run()
    except SystemExit as ended:
        status = ended.code
    except BaseException:  # noqa: BLE001  as the interpreter does
        traceback.print_exc()
        status = 1
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    with suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    return status or 0


def _forking_subprocess(address: str) -> SimpleNamespace:
    forking = SimpleNamespace(**vars(subprocess))
    forking.Popen = lambda *given, **options: _forked_driver(address, *given, **options)
    return forking


def _forked_driver(address: str, command: list[str], **options: Any) -> Any:
    """The optimizer's process as a fork, in place of `subprocess.Popen`."""
    if command[1:4] != ["-P", "-m", DRIVER] or options["env"]["PYTHONHASHSEED"] != HASH_SEED:
        return subprocess.Popen(command, **options)
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123  a descriptor is needed
        log = nowhere if options["stderr"] == subprocess.DEVNULL else options["stderr"]
        forked = ForkedProcess(
            address,
            DRIVER,
            (str(ITS_SOCKET),) if command[4:] else (),
            folder=str(Path.cwd()),
            environment=options["env"],
            streams=(stdin, stdout, log.fileno(), *(options["pass_fds"] if command[4:] else ())),
            session=True,
        )
    os.close(stdin)
    os.close(stdout)
    forked.stdin, forked.stdout = os.fdopen(to_stdin, "wb"), os.fdopen(from_stdout, "rb")
    return forked


if __name__ == "__main__" and os.fork() == 0:  # no child of the test worker that starts it and may end before it
    serve(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
