"""One sandbox's machine: namespaces of its own made by bubblewrap, in which commands really run."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.modal_cloud import inside

NOT_THE_HOSTS = {"proc", "dev", "tmp", "opt", "sys"}
VENV, PROGRAM = "/opt/evolverpc", "/opt/program"
"""Where published images have the server's Python and what a recipe asked for; here both are what runs the tests."""


class Output:
    """What a command writes to one of its streams, kept from its first byte."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False
        self._changed = asyncio.Event()

    def add(self, data: bytes) -> None:
        """More of it; nothing for its end."""
        self.data += data
        self.ended = self.ended or not data
        self._changed.set()
        self._changed = asyncio.Event()

    async def beyond(self, offset: int) -> bytes:
        """What follows `offset`, waiting for it; nothing at the end."""
        while len(self.data) <= offset and not self.ended:
            await self._changed.wait()
        return bytes(self.data[offset : offset + 2**18])


class Running:
    """A command in a machine. `ended`: its status as `Popen.returncode`, or None where the machine ended with it."""

    def __init__(self, pid: int, stdin: int) -> None:
        self.pid = pid
        self.stdout, self.stderr = Output(), Output()
        self.written = 0
        self.ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._stdin = stdin

    async def write(self, data: bytes) -> None:
        """To its stdin, as fast as it reads; lost where it reads no more."""
        self.written += len(data)
        rest = memoryview(data)
        while rest and self._stdin >= 0:
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except BrokenPipeError:
                self.close_stdin()

    def end(self, status: int | None) -> None:
        """It has ended."""
        self.close_stdin()
        self.ended.set_result(status)

    def close_stdin(self) -> None:
        """It reads the end."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1


class Machine:
    """Started by `start`; `gone` is done when nothing runs in it any more."""

    def __init__(self, process: "subprocess.Popen[bytes]", orders: socket.socket, workspace: Path) -> None:
        self._process = process
        self._orders = orders
        self._workspace = workspace
        self._answers: dict[int, asyncio.Future[tuple[dict[str, Any], list[int]]]] = {}
        self._commands: dict[int, Running] = {}
        self._early: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(orders, self._hear)

    @classmethod
    def start(cls, workdir: str) -> "Machine":
        """A fresh one, whose `workdir` is empty and its own."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        workspace = Path(tempfile.mkdtemp(prefix="modal-"))
        with theirs:
            process = subprocess.Popen(
                [
                    *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
                    *("--uid", "0", "--gid", "0", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108  its own
                    *_folders(),
                    *("--symlink", sys.prefix, VENV, "--symlink", sys.prefix, f"{PROGRAM}/venv"),
                    *("--symlink", f"{sys.prefix}/bin", f"{PROGRAM}/path/0", "--bind", str(workspace), workdir),
                    *("--", sys.executable, "-I", "-S", inside.__file__, str(theirs.fileno())),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        return cls(process, ours, workspace)

    async def execute(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Running:
        """Run a command. Raises `OSError` where it cannot be started."""
        pipes = [os.pipe() for _ in range(3)]
        ends = [pipes[0][0], pipes[1][1], pipes[2][1]]
        try:
            answer, _ = await self._ask({"do": "exec", "argv": list(argv), "env": dict(env), "cwd": cwd}, ends)
        except OSError:
            for descriptor in (pipes[0][1], pipes[1][0], pipes[2][0]):
                os.close(descriptor)
            raise
        finally:
            for descriptor in ends:
                os.close(descriptor)
        os.set_blocking(pipes[0][1], False)
        command = Running(answer["pid"], stdin=pipes[0][1])
        if command.pid in self._early:
            command.end(self._early.pop(command.pid))
        else:
            self._commands[command.pid] = command
        self._read(pipes[1][0], command.stdout)
        self._read(pipes[2][0], command.stderr)
        return command

    async def kill(self, command: Running) -> None:
        """End a command and everything of its session."""
        await self._ask({"do": "kill", "pid": command.pid})

    async def unconnected(self) -> socket.socket:
        """A TCP socket in this machine's network, not connected."""
        _, descriptors = await self._ask({"do": "socket"})
        return socket.socket(fileno=descriptors[0])

    async def listen(self, host: str, port: int) -> socket.socket:
        """One that listens in this machine's network."""
        _, descriptors = await self._ask({"do": "listen", "host": host, "port": port})
        return socket.socket(fileno=descriptors[0])

    async def end(self) -> None:
        """Everything in it is killed; returns when it is gone."""
        self._process.kill()
        await asyncio.shield(self.gone)

    async def _ask(self, order: dict[str, Any], descriptors: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]:
        if self.gone.done():
            raise ConnectionError("the sandbox has ended")
        number = max(self._answers, default=0) + 1
        answer = self._answers[number] = self._loop.create_future()
        try:
            socket.send_fds(self._orders, [json.dumps({"id": number, **order}).encode()], descriptors)
            reply, received = await answer
        finally:
            del self._answers[number]
        if "error" in reply:
            raise OSError(reply["error"])
        return reply, received

    def _hear(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._orders, inside.MESSAGE_BYTES, 1)
        except BlockingIOError:
            return
        except ConnectionError:
            data, descriptors = b"", []
        if not data:
            self._over()
            return
        reply = json.loads(data)
        if "ended" in reply:
            command = self._commands.pop(reply["ended"], None)
            if command is None:  # it ended before the answer to its start was taken
                self._early[reply["ended"]] = reply["status"]
            else:
                command.end(reply["status"])
        else:
            self._answers[reply["id"]].set_result((reply, list(descriptors)))

    def _over(self) -> None:
        self._loop.remove_reader(self._orders)
        self._orders.close()
        self._process.wait()
        for answer in self._answers.values():
            answer.set_exception(ConnectionError("the sandbox has ended"))
        for command in self._commands.values():
            command.end(None)
        shutil.rmtree(self._workspace, ignore_errors=True)
        self.gone.set_result(None)

    def _read(self, descriptor: int, output: Output) -> None:
        os.set_blocking(descriptor, False)

        def more() -> None:
            try:
                data = os.read(descriptor, 2**18)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(descriptor)
                os.close(descriptor)
            output.add(data)

        self._loop.add_reader(descriptor, more)


def _folders() -> list[str]:
    """This machine's programs, read-only; what is in /opt beside the link to our own Python."""
    options: list[str] = []
    for entry in sorted(os.scandir("/"), key=lambda entry: entry.name):
        if entry.is_symlink():
            options += ["--symlink", str(Path(entry.path).readlink()), entry.path]
        elif entry.is_dir() and entry.name not in NOT_THE_HOSTS:
            options += ["--ro-bind", entry.path, entry.path]
    for entry in os.scandir("/opt"):
        if entry.path not in (VENV, PROGRAM):
            options += ["--ro-bind", entry.path, entry.path]
    for folder in {sys.prefix, sys.base_prefix, str(Path(__file__).parents[3])}:
        if folder.startswith("/tmp/"):  # noqa: S108  a checkout there would be hidden by the sandbox's own
            options += ["--ro-bind", folder, folder]
    return options
