"""A program process: the child process and its pipes, requests over stdio, its log and its exit."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from protocol.errors import LimitExceeded
from rpc_server.program.answer_watch import AnswerWatch
from rpc_server.program.process_output import BoundedLog, OpenRequest, ProcessOutput
from rpc_server.program.stdio import LineSplitter, LongLine, read_line, read_long_line, request_line
from rpc_server.settings.process_limits import answer_bytes


@dataclass(frozen=True)
class Exit:
    """How a process ended: exit status, or minus the signal that killed it; None if unknown.

    `parent_died`: it ended because the process it was forked from did.
    """

    status: int | None
    parent_died: bool = False
    message: str = ""

    def __str__(self) -> str:
        if self.message:
            return self.message
        if self.status is None:
            return "ended with the process it was forked from" if self.parent_died else "ended"
        if self.status >= 0:
            return f"exited with status {self.status}"
        try:
            return f"was killed by {signal.Signals(-self.status).name}"
        except ValueError:
            return f"was killed by signal {-self.status}"


class Child(Protocol):
    """A started process."""

    def kill(self) -> None:
        """Kill it and its process group; do nothing if it has ended."""
        ...

    def watch(self, on_exit: Callable[[Exit], None]) -> None:
        """Call `on_exit` once, when it has ended. To be called once."""
        ...


class Pipes:
    """The three pipes between the server and a child. The server's ends do not block.

    Raises:
        OSError: no more descriptors are available.
    """

    def __init__(self) -> None:
        made: list[int] = []
        try:
            for _ in range(3):
                made += os.pipe()
        except OSError:
            for descriptor in made:
                os.close(descriptor)
            raise
        self.child_stdin, self.stdin, self.stdout, self.child_stdout, self.stderr, self.child_stderr = made
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(descriptor, False)

    @property
    def child_ends(self) -> tuple[int, int, int]:
        """The child's ends: stdin, stdout, stderr."""
        return self.child_stdin, self.child_stdout, self.child_stderr

    def close_child_ends(self) -> None:
        """Close the child's ends, once it has them."""
        for descriptor in self.child_ends:
            os.close(descriptor)

    def close_own_ends(self) -> None:
        """Close the server's ends, if no process was started."""
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


class SpawnedChild:
    """A process started from a command, leading its own session.

    It is reaped on the event loop after its group has been killed, so that its pid is never reused while in use.
    """

    def __init__(
        self,
        command: Sequence[str],
        pipes: Pipes,
        *,
        cwd: Path,
        env: Mapping[str, str],
        pass_fds: Sequence[int] = (),
        jailed: bool = False,
    ) -> None:
        """Start it. `jailed`: its status is in shells' notation. Raises `OSError`."""
        self._jailed = jailed
        stdin, stdout, stderr = pipes.child_ends
        self._process = subprocess.Popen(  # noqa: S603  # starting the user's program is the purpose
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=dict(env),
            pass_fds=pass_fds,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill it and its process group."""
        if self._process.returncode is None:
            _kill_group(self._process.pid)

    def watch(self, on_exit: Callable[[Exit], None]) -> None:
        """Call `on_exit` once, when it has ended."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # not Linux, or a kernel without it
            self._watch_in_thread(loop, on_exit)
            return

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            _kill_group(self._process.pid)
            on_exit(self._exit(self._process.wait()))

        loop.add_reader(descriptor, ended)

    def _watch_in_thread(self, loop: asyncio.AbstractEventLoop, on_exit: Callable[[Exit], None]) -> None:
        def wait() -> None:
            status = self._process.wait()
            _kill_group(self._process.pid)
            if not loop.is_closed():
                loop.call_soon_threadsafe(on_exit, self._exit(status))

        threading.Thread(target=wait, name="child-exit", daemon=True).start()

    def _exit(self, status: int) -> Exit:
        if self._jailed and status - 128 in list(signal.Signals):
            return Exit(128 - status)
        return Exit(status)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # none of them is left


_MAX_LINE_FACTOR = 16
"""A process is killed if a line of its output is this many times the longest line kept."""

_KILL_WAIT_S = 2.0
"""Seconds to wait for the exit of a killed process."""

_CHUNK = 1 << 18
_LOG_CHUNK = 1 << 16
_DRAIN_CHUNKS = 64


class ProgramProcess:
    """A process that answers requests. Nothing here blocks: responses and its exit arrive as callbacks.

    `report_silence`: gets why requests are not answered, as `AnswerWatch` finds it; without it none is looked for.
    """

    def __init__(self, child: Child, pipes: Pipes, *, report_silence: Callable[[str], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._pipes = pipes
        self._requests: dict[int, OpenRequest] = {}
        self._number = 0
        self._unsent = bytearray()
        self._lines = LineSplitter(answer_bytes())
        self._watch = AnswerWatch(self._lines, self._requests, report_silence)
        self._open = {pipes.stdin, pipes.stdout, pipes.stderr}
        self.alive = True
        """False as soon as its exit is known, before `exited` is set."""
        self._output = ProcessOutput(self._requests)
        self.exited: asyncio.Future[Exit] = self._loop.create_future()
        self._loop.add_reader(pipes.stdout, self._read, pipes.stdout, _CHUNK, self._take_output)
        self._loop.add_reader(pipes.stderr, self._read, pipes.stderr, _LOG_CHUNK, self._output.feed)
        child.watch(self._ended)

    def request(
        self,
        method: str,
        params: dict[str, Any],
        on_answer: Callable[[dict[str, Any]], None],
        *,
        max_bytes: int | None = None,
        log: BoundedLog | None = None,
    ) -> None:
        """Send a request. `on_answer` gets the response; it is never called if the process ends first: see `exited`.

        `log`: gets what the request writes; see `collect_output`.

        Raises:
            LimitExceeded: nested too deep, or more than `max_bytes`; nothing has been sent.
        """
        self._number += 1
        line = request_line(self._number, method, params)
        if max_bytes is not None and len(line) > max_bytes:
            raise LimitExceeded(
                "more than the program reads", limit="max_request_bytes", allowed=max_bytes, given=len(line)
            )
        self._requests[self._number] = OpenRequest(method, on_answer, log, self._loop.time())
        self._watch.sent()
        self.write(line)

    def write(self, data: bytes) -> None:
        """Send bytes, buffering what the pipe does not accept yet."""
        if self._pipes.stdin not in self._open:
            return
        if not self._unsent:
            try:
                data = data[os.write(self._pipes.stdin, data) :]
            except BlockingIOError:
                pass
            except OSError:  # it reads no more: its exit is about to be noticed
                return
            if not data:
                return
            self._loop.add_writer(self._pipes.stdin, self._write_more)
        self._unsent += data

    def _write_more(self) -> None:
        try:
            sent = os.write(self._pipes.stdin, memoryview(self._unsent)[:_CHUNK])
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()
        else:
            del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._pipes.stdin)

    def end_input(self) -> None:
        """Close its stdin, which asks it to exit."""
        self._close(self._pipes.stdin)

    def kill(self) -> None:
        """Kill it and its process group."""
        self._child.kill()

    async def end(self, *, grace_s: float) -> None:
        """Close its stdin, kill it after `grace_s`, and wait for its exit for a few seconds at most."""
        self.end_input()
        done, _ = await asyncio.wait({self.exited}, timeout=grace_s)
        if not done:
            self.kill()
            await asyncio.wait({self.exited}, timeout=_KILL_WAIT_S)

    def collect_output(self) -> None:
        """Give the logs of requests what the process has written until now."""
        self._drain(self._pipes.stderr, self._output.feed)

    def log_tail(self) -> str:
        """Return the last that it wrote."""
        self.collect_output()
        return self._output.tail.text()

    def unanswered(self) -> str:
        """Return why a request of a command is not answered, and what to do; empty if nothing explains it."""
        return self._watch.explain()

    def _read(self, descriptor: int, size: int, take: Callable[[bytes], None]) -> bool:
        """Read one chunk; return False if there is none now."""
        try:
            data = os.read(descriptor, size)
        except BlockingIOError:
            return False
        if not data:
            self._close(descriptor)
            if descriptor == self._pipes.stdout:
                self.kill()  # it cannot answer any more
            return False
        take(data)
        return True

    def _drain(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        for _ in range(_DRAIN_CHUNKS):  # a process that never stops writing must not keep us here
            if descriptor not in self._open or not self._read(descriptor, _CHUNK, take):
                return

    def _take_output(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if isinstance(line, LongLine):
                self._take_long_line(line)
            else:
                self._take_line(line)
        if self._lines.unfinished > _MAX_LINE_FACTOR * self._lines.limit:
            self._end_at_long_line(self._lines.unfinished)
        elif self._lines.unfinished:
            self._watch.interrupted()

    def _take_long_line(self, line: LongLine) -> None:
        message = read_long_line(line, self._requests)
        if message is None:
            self._end_at_long_line(line.size)  # it may be a response, whose request would wait forever
        else:
            self._answer(message)

    def _end_at_long_line(self, size: int) -> None:
        self._output.write(b"\n(a line of %d bytes on stdout: process ended)\n" % size)
        self.kill()

    def _take_line(self, line: bytes) -> None:
        message = read_line(line)
        if message is not None and self._is_answer(message):
            self._answer(message)
        else:
            # Text, an error about unreadable input, an echoed request, or an answer to no request.
            self._output.write(line + b"\n")
            self._watch.strayed(line, message)

    def _is_answer(self, message: dict[str, Any]) -> bool:
        number = message.get("id")
        return "method" not in message and isinstance(number, int | float) and number in self._requests

    def _answer(self, message: dict[str, Any]) -> None:
        self.collect_output()
        request = self._requests.pop(message["id"])
        self._watch.answered()
        request.on_answer(message)

    def _ended(self, status: Exit) -> None:
        self.alive = False
        # The pipes still hold what it wrote before its exit.
        self._drain(self._pipes.stdout, self._take_output)
        self.collect_output()
        if begun := self._lines.begun:
            self._output.write(begun + b"\n")
        self._output.end()
        for descriptor in tuple(self._open):
            self._close(descriptor)
        self._watch.end(status.status)
        if not self.exited.done():
            self.exited.set_result(status)

    def _close(self, descriptor: int) -> None:
        if descriptor not in self._open:
            return
        self._open.discard(descriptor)
        with contextlib.suppress(ValueError):
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
        os.close(descriptor)
