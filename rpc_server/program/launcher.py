"""Start program processes: interpreter and environment; commands anew, Python programs by forking a warm process."""

import asyncio
import contextlib
import errno
import itertools
import json
import logging
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any, Protocol

from evolverpc_common.git import REPOSITORY_VARIABLES
from protocol.errors import ProgramFailed
from rpc_server import wire
from rpc_server.jail.jail import Jail
from rpc_server.program.child_process import Exit, Pipes, SpawnedChild
from rpc_server.program.process import ProgramProcess
from rpc_server.settings import Settings


def find_interpreter(settings: Settings) -> Path:
    """Return the setting `python`, else the project's `.venv`, the active environment, `python3`, or our own."""
    if settings.python is not None:
        return _absolute(settings.root / settings.python)
    active = os.environ.get("VIRTUAL_ENV")
    environments = (settings.root / ".venv", *([Path(active)] if active else []))
    found = next((path for folder in environments if (path := folder / "bin" / "python").is_file()), None)
    return _absolute(found or Path(shutil.which("python3") or sys.executable))


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
    """Starts the command anew each time. Reports, once for each method, why it does not answer; the server waits on."""

    def __init__(self, command: tuple[str, ...], *, root: Path, env: dict[str, str], jail: Jail | None = None) -> None:
        self._command = command
        self._root = root
        self._jail = jail
        self._env = {**env, STDIO_VARIABLE: "1"}
        self._reported: set[str] = set()

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
            child = SpawnedChild(command, pipes, cwd=self._root, env=self._env)
        except OSError as error:
            raise ProgramFailed(f"cannot start {name!r}: {error.strerror}", stage="start", log_tail="") from error
        process = ProgramProcess(child.kill, pipes, report_silence=self._report_silence)
        child.watch(process.ended)
        return process

    def _report_silence(self, method: str, explanation: str) -> None:
        if method not in self._reported:
            self._reported.add(method)
            logger.warning("no answer yet: %s", explanation)

    async def close(self) -> None:
        """Do nothing: callers end the processes they got."""


_BOOTSTRAP = WORKER_FOLDER / "bootstrap.py"
_GRACE_S = 0.5
_MAX_MESSAGE_BYTES = 2**24
"""Bytes of one message of the warm process: it runs user code, which must not fill the server's memory."""


class PythonLauncher:
    """Forks from a warm process (see `rpc_server/worker/zygote.py`), which is restarted when it has ended.

    A program that cannot be forked, because its import started threads, is started anew each time.
    """

    def __init__(
        self,
        interpreter: Path,
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
            return (await self._start()).process
        async with self._starting:
            if self._zygote is None or not self._zygote.process.alive:
                started = await self._start()
                if not self.forks:
                    return started.process
                self._zygote = started
        return self._zygote.fork()

    async def close(self) -> None:
        """End the warm process, and with it its forks."""
        if self._zygote is not None:
            await self._zygote.close()

    async def _start(self) -> "_ZygoteClient":
        """Start a process that has imported the program."""
        path = self._interpreter
        if self._jail is not None and not os.access(path, os.X_OK):  # the jail would hide why it cannot start
            reason = os.strerror(errno.EACCES if path.exists() else errno.ENOENT)
            raise ProgramFailed(f"cannot start {path}: {reason}", stage="start", log_tail="")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        command: tuple[str, ...] = (str(path), str(_BOOTSTRAP), str(theirs.fileno()))
        try:
            if self._jail is not None:
                # Its forks have a higher niceness, so that it can end them, however many they are.
                command = self._jail.wrap(command, folder=self._root, environment=self._env, niceness=0)
            pipes = Pipes()
            child = SpawnedChild(command, pipes, cwd=self._root, env=self._env, pass_fds=(theirs.fileno(),))
        except OSError as error:
            ours.close()
            raise ProgramFailed(f"cannot start {path}: {error.strerror}", stage="start", log_tail="") from error
        finally:
            theirs.close()
        started = _ZygoteClient(ProgramProcess(child.kill, pipes), ours)
        child.watch(started.process.ended)
        started.process.write(wire.write(self._config) + b"\n")
        try:
            hello = await started.hello
            await _check(hello, started.process)
        except BaseException:
            await started.process.end(grace_s=0)
            raise
        self.mode = hello["mode"]
        self.forks = hello["ready"] == "fork"
        return started


async def _check(hello: dict[str, Any], process: ProgramProcess) -> None:
    if "ready" in hello:
        return
    # It exits after a failure; its exit is the reason if it gives none.
    await asyncio.wait({process.exited}, timeout=_GRACE_S)
    how = str(process.exited.result()) if process.exited.done() else "closed its connection"
    failed = {"stage": "start", "message": f"the interpreter {how} before the program was imported"}
    raise ProgramFailed(**hello.get("failed", failed), log_tail=process.log_tail())


class _ZygoteClient:
    """The server's side of the warm process: requests forks, and receives each fork's exit.

    `hello`: the message about its start; empty if it ended without one. A process that does not fork sends no other.
    """

    def __init__(self, process: ProgramProcess, control: socket.socket) -> None:
        self.process = process
        self._control = control
        self._numbers = itertools.count(1)
        self._children: dict[int, ProgramProcess] = {}
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self.hello: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._loop.add_reader(self._control, self._read)
        self.process.exited.add_done_callback(self._ended)

    def fork(self) -> ProgramProcess:
        """Return a new process that has imported the program.

        The process that it was forked from signals and reaps it, so that its pid is never stale.
        """
        pipes = Pipes()
        number = next(self._numbers)
        process = self._children[number] = ProgramProcess(lambda: self._send({"kill": number}), pipes)
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
            self.process.kill()

    def _read(self) -> bool:
        """Take what it has sent; return False if that is nothing more now."""
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if not self.hello.done():
                self.hello.set_result(message)
            else:
                self._children.pop(message["exited"]).ended(Exit(message["status"], message=message.get("message", "")))
        if not data or len(self._buffer) > _MAX_MESSAGE_BYTES:
            self._close_control()
            if self._children:
                self.process.kill()
        return bool(data)

    def _ended(self, _: "asyncio.Future[Exit]") -> None:
        while self._read():
            pass  # what it sent before its end
        self._close_control()
        children, self._children = self._children, {}
        for child in children.values():  # on Linux the kernel ends them, elsewhere the end of their input
            child.ended(Exit(None, parent_died=True))

    def _close_control(self) -> None:
        if not self.hello.done():
            self.hello.set_result({})
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control)
            self._control.close()

    async def close(self) -> None:
        """End it, and with it all of its forks."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        await self.process.end(grace_s=_GRACE_S)
