"""One program process over stdio: numbered requests, its log, its exit, and its heartbeat."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

from protocol.errors import LimitExceeded
from rpc_server.program.child_process import Child, Exit, Pipes
from rpc_server.program.stdio import LineSplitter, LogTail, LongLine, read_line, read_long_line, request_line
from rpc_server.settings.process_limits import answer_bytes

_MAX_LINE_FACTOR = 16
"""A process is killed if a line of its output is this many times the longest line kept."""

_KILL_WAIT_S = 2.0
"""Seconds to wait for the exit of a killed process."""

_CHUNK = 1 << 18
_LOG_CHUNK = 1 << 16
_DRAIN_CHUNKS = 64

OnAnswer = Callable[[dict[str, Any]], None]
"""Receives a JSON-RPC response."""


class ProgramProcess:
    """A process that answers requests. Nothing here blocks: responses and its exit arrive as callbacks."""

    def __init__(self, child: Child, pipes: Pipes) -> None:
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._pipes = pipes
        self._pending: dict[int, OnAnswer] = {}
        self._number = 0
        self._unsent = bytearray()
        self._lines = LineSplitter(answer_bytes())
        self._open = {pipes.stdin, pipes.stdout, pipes.stderr}
        self.alive = True
        """False as soon as its exit is known, before `exited` is set."""
        self.log = LogTail()
        self.exited: asyncio.Future[Exit] = self._loop.create_future()
        self._loop.add_reader(pipes.stdout, self._read_stdout)
        self._loop.add_reader(pipes.stderr, self._read_stderr)
        child.watch(self._ended)

    def request(
        self, method: str, params: dict[str, Any], on_answer: OnAnswer, *, max_bytes: int | None = None
    ) -> None:
        """Send a request. `on_answer` is never called if the process ends first: see `exited`.

        Raises:
            LimitExceeded: nested too deep, or more than `max_bytes`; nothing has been sent.
        """
        self._number += 1
        line = request_line(self._number, method, params)
        if max_bytes is not None and len(line) > max_bytes:
            raise LimitExceeded(
                "more than the program reads", limit="max_request_bytes", allowed=max_bytes, given=len(line)
            )
        self._pending[self._number] = on_answer
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

    def log_since(self, mark: int = 0) -> str:
        """Return what it wrote to its log since `log.total` was `mark`."""
        self._drain(self._pipes.stderr, self._take_log)
        return self.log.since(mark)

    def _read_stdout(self) -> None:
        self._read(self._pipes.stdout, _CHUNK, self._take_output)

    def _read_stderr(self) -> None:
        self._read(self._pipes.stderr, _LOG_CHUNK, self._take_log)

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

    def _take_log(self, data: bytes) -> None:
        self.log.write(data)

    def _take_output(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if isinstance(line, LongLine):
                self._take_long_line(line)
            else:
                self._take_line(line)
        if self._lines.unfinished > _MAX_LINE_FACTOR * self._lines.limit:
            self._end_at_long_line(self._lines.unfinished)

    def _take_long_line(self, line: LongLine) -> None:
        message = read_long_line(line, self._pending)
        if message is None:
            self._end_at_long_line(line.size)  # it may be a response, whose request would wait forever
        else:
            self._pending.pop(message["id"])(message)

    def _end_at_long_line(self, size: int) -> None:
        self.log.write(b"\n(a line of %d bytes on stdout: process ended)\n" % size)
        self.kill()

    def _take_line(self, line: bytes) -> None:
        message = read_line(line)
        if message is None:
            self.log.write(line + b"\n")
            return
        number = message.get("id")
        if not isinstance(number, int) or "method" in message:
            # An error about unreadable input, or an echoed request.
            self.log.write(line + b"\n")
            return
        on_answer = self._pending.pop(number, None)
        if on_answer is not None:
            on_answer(message)

    def _ended(self, status: Exit) -> None:
        self.alive = False
        # The pipes still hold what it wrote before its exit.
        self._drain(self._pipes.stdout, self._take_output)
        self._drain(self._pipes.stderr, self._take_log)
        for descriptor in tuple(self._open):
            self._close(descriptor)
        self._pending.clear()
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


CALL_ID = "heartbeat"
"""The `call_id` of no call: a `cancel` of it is answered at once and changes nothing."""

_SLOW_S = 0.02
_BEATS_PER_LIMIT = 100
_SHORTEST_S, _LONGEST_S = 0.02, 1.0


class ProcessHeartbeat:
    """Sends a `cancel` of no call every hundredth of `limit_s`, 0.02 s to 1 s, and measures the responses.

    If a response is over 0.02 s late, the time since the one before counts as blocked, so that `blocked_s` errs high.
    It includes time in which the server or the machine was too busy to ask or to answer.
    """

    def __init__(self, process: ProgramProcess, limit_s: float) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._every_s = min(max(limit_s / _BEATS_PER_LIMIT, _SHORTEST_S), _LONGEST_S)
        self._timer: asyncio.TimerHandle | None = None
        self._asked = False
        self._seen = 0.0
        self._blocked_s = 0.0

    @property
    def blocked_s(self) -> float:
        """Seconds without a timely response; compare two readings without a `stop` between them."""
        since = self._loop.time() - self._seen
        return self._blocked_s + (since if since > self._every_s + _SLOW_S else 0.0)

    def start(self) -> None:
        """Start or continue; do nothing while it runs."""
        if self._timer is not None:
            return
        self._seen = self._loop.time()
        self._timer = self._loop.call_later(self._every_s, self._beat)

    def stop(self) -> None:
        """Send no more until `start`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        self._timer = self._loop.call_later(self._every_s, self._beat)
        if not self._asked:
            self._asked = True
            self._process.request("cancel", {"call_id": CALL_ID}, self._answered)

    def _answered(self, _: dict[str, Any]) -> None:
        self._blocked_s = self.blocked_s
        self._seen = self._loop.time()
        self._asked = False
