"""A program process: requests over stdio, what it writes beside the answers, and why it does not answer."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evolverpc_common.display_text import counted, plain
from evolverpc_common.output_tail import OutputTail
from protocol.errors import LimitExceeded
from rpc_server.memory_bounds import answer_bytes
from rpc_server.program.child_process import ChildProcess, Exit, Pipes
from rpc_server.program.stdio import LOG_TAIL_BYTES, LineSplitter, read_line, request_line

MAX_LOG_BYTES = 16 * 1024
"""Bytes kept of what one example writes: the first and the last half."""

_HALF = MAX_LOG_BYTES // 2
_WHOLE_LINES = _HALF // 2
"""Bytes that each half keeps at least if it is cut at the end of a line."""

_FRAME = re.compile(rb"\0([0-9]{1,15}):([0-9]{1,4})\0")
"""The head of a frame (docs/protocol.md, stdio): the id of a request, and the bytes that follow."""

_START_OF_A_FRAME = re.compile(rb"\0[0-9]{0,15}(?::[0-9]{0,4})?\Z")
_HEADER_BYTES = 22

written_output = logging.getLogger(f"{__name__}.written")
"""Gets what programs write, as INFO; each record has a `source`."""

PROGRAM = "program"
"""The source of what no request wrote."""


def report_output(text: str, source: str) -> None:
    """Give `written_output` what a program wrote, if it is wanted."""
    if text and written_output.isEnabledFor(logging.INFO):
        written_output.info("%s", text, extra={"source": source})


class BoundedLog:
    """The output of one request: the first and the last of it, with the number of bytes that are left out between."""

    def __init__(self) -> None:
        self._first = bytearray()
        self._last = OutputTail(_HALF)
        self._total = 0

    def write(self, data: bytes) -> None:
        """Append; what lies in the middle is dropped."""
        self._total += len(data)
        room = _HALF - len(self._first)
        self._first += data[:room]
        self._last.add(data[room:])

    def text(self) -> str:
        """Return the output as text; of a longer one the whole lines at both ends, or parts of very long lines."""
        first, last = bytes(self._first), self._last.bytes()
        if self._total <= MAX_LOG_BYTES:
            return (first + last).decode("utf-8", "replace")
        first = first[: first.rfind(b"\n", _WHOLE_LINES) + 1] or first
        last = last[last.find(b"\n", 0, _WHOLE_LINES) + 1 :]
        left_out = f"… {self._total - len(first) - len(last):,} bytes left out …"
        before, after = first.decode("utf-8", "replace").rstrip("\n"), last.decode("utf-8", "replace")
        return f"{before}\n{left_out}\n{after}"


@dataclass
class OpenRequest:
    """A request that a process has not answered. `log`: gets what it writes."""

    method: str
    answer: "asyncio.Future[dict[str, Any] | Exit]"
    log: BoundedLog | None


class ProcessOutput:
    """Divides the output of a process among its open `requests`, by their numbers.

    A frame belongs to the request that it names, and what is not framed to the only one that has a log. Lines that
    belong to none are reported. `tail`: the last of all.
    """

    def __init__(self, requests: Mapping[int, OpenRequest]) -> None:
        self.tail = OutputTail(LOG_TAIL_BYTES)
        self._requests = requests
        self._unfinished = b""
        self._line = b""

    def feed(self, data: bytes) -> None:
        """Take a chunk, which may end within a frame."""
        data, at = self._unfinished + data, 0
        while (frame := _FRAME.search(data, at)) is not None:
            self.write(data[at : frame.start()])
            at = frame.start()
            end = frame.end() + int(frame[2])
            if end > len(data):
                break
            named = self._requests.get(int(frame[1]))
            self._give(None if named is None else named.log, data[frame.end() : end])
            at = end
        else:
            start = _START_OF_A_FRAME.search(data, max(at, len(data) - _HEADER_BYTES))
            rest = len(data) if start is None else start.start()
            self.write(data[at:rest])
            at = rest
        self._unfinished = data[at:]

    def write(self, data: bytes) -> None:
        """Take bytes that are not framed."""
        if data:
            logs = [request.log for request in self._requests.values() if request.log is not None]
            self._give(logs[0] if len(logs) == 1 else None, data)

    def end(self) -> None:
        """Take what is left of a frame that will not be finished."""
        data, self._unfinished = self._unfinished, b""
        self.write(data)
        report_output(self._line.decode("utf-8", "replace"), PROGRAM)
        self._line = b""

    def _give(self, log: BoundedLog | None, data: bytes) -> None:
        self.tail.add(data)
        if log is not None:
            log.write(data)
            return
        lines, _, self._line = (self._line + data).rpartition(b"\n")
        report_output(lines.decode("utf-8", "replace"), PROGRAM)
        self._line = self._line[-_HALF:]


SILENCE_S = 3.0
"""Seconds that the first request, or one beside an answer with a wrong id, waits until the reason is reported."""

_MOST_SHOWN = 120
"""Characters of what was written in place of an answer."""


class ProgramProcess(ChildProcess):
    """A process that answers requests.

    `report_silence`: gets the method of a request and what came in place of its answer, after `SILENCE_S`; without it
    no explanation is looked for, also not in `unanswered`.
    """

    def __init__(
        self, kill: Callable[[], None], pipes: Pipes, *, report_silence: Callable[[str, str], None] | None = None
    ) -> None:
        self._requests: dict[int, OpenRequest] = {}
        self._exit: Exit | None = None
        self._number = 0
        self._lines = LineSplitter(answer_bytes())
        self._report_silence = report_silence
        self._is_watched = False
        self._stray = ""
        self._output = ProcessOutput(self._requests)
        super().__init__(kill, pipes, on_output=self._take_output, on_log=self._output.feed, on_end=self._take_end)

    def ask(
        self, method: str, params: dict[str, Any], *, max_bytes: int | None = None, log: BoundedLog | None = None
    ) -> OpenRequest:
        """Send a request, whose `answer` is the response, or the exit of the process if that comes first.

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
        request = OpenRequest(method, self._loop.create_future(), log)
        if self._exit is None:
            self._requests[self._number] = request
            if self._number == 1:
                self._report_later()
            self.write(line)
        else:
            request.answer.set_result(self._exit)
        return request

    def give_up(self) -> None:
        """Wait for no answer any more: the server ends the process."""
        self._answer_all(Exit(None))

    def log_tail(self) -> str:
        """Return the last that it wrote."""
        self.collect_output()
        return self._output.tail.text()

    def unanswered(self) -> str:
        """Return what came in place of the oldest answer that is due, and what to do; empty if nothing explains it."""
        if self._report_silence is None or not self._requests:
            return ""
        oldest, instead = next(iter(self._requests.values())), self._stray
        if begun := bytes(self._lines.begun):
            instead = f"{counted(len(begun), 'byte')} without a newline at the end ({_shown(begun)}): flush whole lines"
        if not instead and self._exit is not None:
            return "it must read requests until its input ends" if self._exit.status == 0 else ""
        if not instead and self._number == 1:
            instead = "nothing: it must read JSON-RPC from stdin line by line, and flush each answer"
        return f"sent {oldest.method}; received {instead}" if instead else ""

    def _report_later(self) -> None:
        if self._report_silence is not None and not self._is_watched:
            self._is_watched = True
            self._loop.call_later(SILENCE_S, self._report_unanswered, self._report_silence)

    def _report_unanswered(self, report: Callable[[str, str], None]) -> None:
        self._is_watched = False
        if self._exit is None and (explanation := self.unanswered()):
            report(next(iter(self._requests.values())).method, explanation)

    def _take_output(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._take_line(line)
        if len(self._lines.begun) == self._lines.limit:
            self._end_at_long_line()
        elif not data:
            self.kill()  # it cannot answer any more

    def _take_end(self, status: Exit) -> None:
        if begun := bytes(self._lines.begun[:LOG_TAIL_BYTES]):
            self._output.write(begun + b"\n")
        self._output.end()
        self._answer_all(status)

    def _answer_all(self, status: Exit) -> None:
        self._exit = status
        for request in self._requests.values():
            if not request.answer.done():
                request.answer.set_result(status)

    def _end_at_long_line(self) -> None:
        self._output.write(b"\n(a line of %d bytes or more on stdout: process ended)\n" % self._lines.limit)
        self._lines.begun.clear()
        self.kill()

    def _take_line(self, line: bytes) -> None:
        if len(line) == self._lines.limit:
            self._end_at_long_line()  # it may be a response, whose request would wait forever
            return
        message, fault = read_line(line)
        if message is not None and self._is_answer(message):
            self._answer(message)
        else:
            # Text, an error about unreadable input, an echoed request, or an answer to no request.
            self._output.write(line + b"\n")
            is_log = message is None and self._number > 1 and not line.lstrip().startswith((b"{", b"["))
            if self._requests and line.strip() and not is_log:
                self._stray = f"{_shown(line)}, which answers no request: {fault or 'write its `id` and a `result`'}"
                if message is not None and self._has_wrong_id(message):
                    self._report_later()

    def _is_answer(self, message: dict[str, Any]) -> bool:
        number = message.get("id")
        return "method" not in message and isinstance(number, int | float) and number in self._requests

    def _has_wrong_id(self, message: dict[str, Any]) -> bool:
        """Whether it is an answer with an id that no request has had."""
        number = message.get("id")
        had = isinstance(number, int) and 1 <= number <= self._number
        return not had and not message.keys().isdisjoint({"result", "error"})

    def _answer(self, message: dict[str, Any]) -> None:
        self.collect_output()
        request = self._requests.pop(message["id"])
        if not self._requests:
            self._stray = ""
        if not request.answer.done():
            request.answer.set_result(message)


def _shown(line: bytes) -> str:
    return f"`{plain(line[: 4 * _MOST_SHOWN].decode('utf-8', 'replace'), limit=_MOST_SHOWN)}`"
