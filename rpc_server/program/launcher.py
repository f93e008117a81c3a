"""Start program processes: interpreter and environment; commands anew, Python programs by forking a warm process."""

import asyncio
import contextlib
import errno
import itertools
import json
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from evolverpc_common.git import REPOSITORY_VARIABLES
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import Jail
from rpc_server.program.child_process import Exit, Pipes, SpawnedChild
from rpc_server.program.process import ProgramProcess
from rpc_server.rpc import wire
from rpc_server.settings.settings import Settings


@dataclass(frozen=True)
class Interpreter:
    """A Python executable, and the reason for its choice."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


def find_interpreter(settings: Settings) -> Interpreter:
    """Return the setting `python`, else the project's `.venv`, the active environment, `python3`, or our own."""
    if settings.python is not None:
        return Interpreter(_absolute(settings.root / settings.python), "the setting `python`")
    in_project = settings.root / ".venv" / "bin" / "python"
    if in_project.is_file():
        return Interpreter(_absolute(in_project), f"the .venv in {settings.root}")
    active = os.environ.get("VIRTUAL_ENV")
    if active and (in_active := Path(active) / "bin" / "python").is_file():
        return Interpreter(_absolute(in_active), "the active environment")
    on_path = shutil.which("python3")
    if on_path is not None:
        return Interpreter(_absolute(Path(on_path)), "python3 on the PATH")
    return Interpreter(Path(sys.executable), "the server's own")


def _absolute(path: Path) -> Path:
    # Not resolved: the interpreter of an environment is a link, whose location matters.
    return Path(os.path.abspath(path))  # noqa: PTH100  # as above


WORKER_FOLDER = Path(__file__).parents[1] / "worker"
_DIE_WITH_SERVER = WORKER_FOLDER / "parent_death.py"

SECRETS = ("GEPA_TOKEN", "GEPA_LISTEN", "GEPA_ALLOWED_HOSTS")
"""Variables that the program does not get."""

STDIO_VARIABLE = "GEPA_STDIO"
"""Set for a command that the server talks to over stdio, so that one meant for HTTP can fail at once."""

logger = logging.getLogger(__name__)


class Launcher(Protocol):
    """Starts program processes, any number at the same time."""

    async def launch(self) -> ProgramProcess:
        """Start one. Cancelling leaves nothing behind.

        Raises:
            ProgramFailed: it cannot be started; `stage`, `message`, `log_tail`, `traceback` and `interpreter` as known.
        """
        ...

    async def close(self) -> None:
        """End its processes that still run."""
        ...


def program_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of the program's processes: the server's without secrets, and `settings.env`."""
    # A program whose code evolves runs elsewhere than in the repository that such a variable names.
    withheld = (*SECRETS, *REPOSITORY_VARIABLES) if settings.has_trees else SECRETS
    return {**{name: value for name, value in os.environ.items() if name not in withheld}, **settings.env}


class CommandLauncher:
    """Starts the command anew each time. Reports once why it does not answer, while the server waits on."""

    def __init__(self, command: tuple[str, ...], *, root: Path, env: dict[str, str], jail: Jail | None = None) -> None:
        self._command = command
        self._root = root
        self._jail = jail
        self._env = {**env, STDIO_VARIABLE: "1"}
        self._reported = False

    async def launch(self) -> ProgramProcess:
        """Start the command."""
        name = self._command[0]
        search = self._root / name if os.sep in name else Path(name)
        if shutil.which(search, path=self._env.get("PATH")) is None:
            found = "cannot be executed: chmod +x it, or name its interpreter first, such as `perl`"
            message = f"{name!r} {found}" if os.sep in name and search.is_file() else f"there is no command {name!r}"
            raise ProgramFailed(message, stage="start", log_tail="")
        pipes = Pipes()
        command = self._command
        if self._jail is not None:
            command = self._jail.wrap(command, folder=self._root, environment=self._env)
        # Through a small program that requests the parent-death signal and then executes the command.
        command = (sys.executable, "-I", "-S", str(_DIE_WITH_SERVER), *command)
        try:
            child = SpawnedChild(command, pipes, cwd=self._root, env=self._env, jailed=self._jail is not None)
        except OSError as error:
            raise ProgramFailed(f"cannot start {name!r}: {error.strerror}", stage="start", log_tail="") from error
        return ProgramProcess(child, pipes, report_silence=self._report_silence)

    def _report_silence(self, explanation: str) -> None:
        if not self._reported:
            self._reported = True
            logger.warning("no answer yet: %s", explanation)

    async def close(self) -> None:
        """Do nothing: callers end the processes they got."""


_BOOTSTRAP = WORKER_FOLDER / "bootstrap.py"
_GRACE_S = 0.5
_MAX_HELLO_BYTES = 2**24
_MAX_MESSAGE_BYTES = 2**16
"""Bytes of one message of the warm process: it runs user code, which must not fill the server's memory."""


class PythonLauncher:
    """Forks from a warm process (see `rpc_server/worker/zygote.py`), which is restarted when it has ended.

    A program that cannot be forked, because its import started threads, is started anew each time.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        config: dict[str, Any],
        *,
        root: Path,
        env: dict[str, str],
        jail: Jail | None = None,
    ) -> None:
        self._interpreter = interpreter
        self._jail = jail
        self._config = config
        self._root = root
        self._env = env
        self._starting = asyncio.Lock()
        self._zygote: _ZygoteClient | None = None
        self.forks = True
        """Whether processes are forks; decided by the first one."""

        self.mode: str | None = None
        """"sync", "threads" or "async"; None before the first process."""

    async def launch(self) -> ProgramProcess:
        """Fork the warm process, or start a process."""
        if not self.forks:
            return (await self._start())[0]
        async with self._starting:
            if self._zygote is None or not self._zygote.alive:
                process, control = await self._start()
                if not self.forks:
                    return process
                self._zygote = _ZygoteClient(process, control, jailed=self._jail is not None)
        return self._zygote.fork()

    async def close(self) -> None:
        """End the warm process, and with it its forks."""
        if self._zygote is not None:
            await self._zygote.close()

    async def _start(self) -> tuple[ProgramProcess, socket.socket]:
        """Return a process that has imported the program, and its control socket."""
        path = self._interpreter.path
        if self._jail is not None and not os.access(path, os.X_OK):  # the jail would hide why it cannot start
            reason = os.strerror(errno.EACCES if path.exists() else errno.ENOENT)
            raise self._failed(f"cannot start {path}: {reason}", "start", "")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        command: tuple[str, ...] = (str(path), str(_BOOTSTRAP), str(theirs.fileno()))
        inherited, jailed = (theirs.fileno(),), self._jail is not None
        try:
            if self._jail is not None:
                # Its forks have a higher niceness, so that it can end them, however many they are.
                command = self._jail.wrap(command, folder=self._root, environment=self._env, niceness=0)
            pipes = Pipes()
            child = SpawnedChild(command, pipes, cwd=self._root, env=self._env, pass_fds=inherited, jailed=jailed)
        except OSError as error:
            ours.close()
            raise self._failed(f"cannot start {path}: {error.strerror}", "start", "") from error
        finally:
            theirs.close()
        process = ProgramProcess(child, pipes)
        process.write(wire.write(self._config) + b"\n")
        try:
            hello = await _read_hello(ours)
            await self._check(hello, process)
        except BaseException:
            ours.close()
            await process.end(grace_s=0)
            raise
        self.mode = hello["mode"]
        self.forks = hello["ready"] == "fork"
        if not self.forks:
            ours.close()
        return process, ours

    async def _check(self, hello: dict[str, Any], process: ProgramProcess) -> None:
        if "ready" in hello:
            return
        # It exits after a failure; its exit is the reason if it gives none.
        await asyncio.wait({process.exited}, timeout=_GRACE_S)
        failed = hello.get("failed")
        if failed is not None:
            raise self._failed(failed["message"], failed["stage"], process.log_tail(), failed.get("traceback"))
        how = str(process.exited.result()) if process.exited.done() else "closed its connection"
        raise self._failed(f"the interpreter {how} before the program was imported", "start", process.log_tail())

    def _failed(self, message: str, stage: str, log_tail: str, traceback: str | None = None) -> ProgramFailed:
        return ProgramFailed(
            message, stage=stage, log_tail=log_tail, traceback=traceback, interpreter=str(self._interpreter)
        )


class _ZygoteClient:
    """The server's side of the warm process: requests forks, and receives each fork's exit.

    `jailed`: the reported pids belong to the jail's namespace, and must not be used here.
    """

    def __init__(self, process: ProgramProcess, control: socket.socket, *, jailed: bool) -> None:
        self._jailed = jailed
        self._process = process
        self._control = control
        self._numbers = itertools.count(1)
        self._children: dict[int, _ForkedChild] = {}
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._control, self._read)
        self._process.exited.add_done_callback(self._ended)

    @property
    def alive(self) -> bool:
        return self._process.alive

    def fork(self) -> ProgramProcess:
        """Return a new process that has imported the program."""
        pipes = Pipes()
        number = next(self._numbers)
        child = _ForkedChild(lambda: self._send({"kill": number}))
        self._children[number] = child
        process = ProgramProcess(child, pipes)
        try:
            self._send({"fork": number}, pipes.child_ends)
        finally:
            pipes.close_child_ends()
        return process

    def _send(self, message: dict[str, int], descriptors: tuple[int, ...] = ()) -> None:
        try:
            socket.send_fds(self._control, [wire.write(message) + b"\n"], descriptors)
        except OSError:
            # Dead, or stopped with a full socket: unusable either way. Its forks end with it.
            self._process.kill()

    def _read(self) -> None:
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._control)
            self._process.kill()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > _MAX_MESSAGE_BYTES:
            self._process.kill()
            self._buffer = b""
        for line in lines:
            message = json.loads(line)
            if "forked" in message:
                if not self._jailed:
                    self._children[message["forked"]].pid = message["pid"]
            else:
                child = self._children.pop(message["exited"])
                child.ended(Exit(message["status"], message=message.get("message", "")))

    def _ended(self, _: "asyncio.Future[Exit]") -> None:
        self._loop.remove_reader(self._control)
        self._control.close()
        children, self._children = self._children, {}
        for child in children.values():
            child.orphaned()

    async def close(self) -> None:
        """End it, and with it all of its forks."""
        if self.alive:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
        await self._process.end(grace_s=_GRACE_S)


class _ForkedChild:
    """A fork, signalled and reaped by the process it was forked from, so that its pid is never stale."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        self._on_exit: Callable[[Exit], None] | None = None
        self.pid: int | None = None

    def kill(self) -> None:
        if self._on_exit is not None:
            self._kill()

    def watch(self, on_exit: Callable[[Exit], None]) -> None:
        self._on_exit = on_exit

    def ended(self, status: Exit) -> None:
        """Pass its exit on, once."""
        if self._on_exit is not None:
            on_exit, self._on_exit = self._on_exit, None
            on_exit(status)

    def orphaned(self) -> None:
        """Handle the exit of the process it was forked from; on Linux the kernel ends the fork."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self.ended(Exit(None, parent_died=True))


async def _read_hello(control: socket.socket) -> dict[str, Any]:
    """Return the worker's one line about its start; empty if it ended without one."""
    loop = asyncio.get_running_loop()
    line = b""
    while not line.endswith(b"\n"):
        try:
            data = await loop.sock_recv(control, 1 << 16)
        except OSError:
            return {}
        line += data
        if not data or len(line) > _MAX_HELLO_BYTES:
            return {}
    hello: dict[str, Any] = json.loads(line)
    return hello
