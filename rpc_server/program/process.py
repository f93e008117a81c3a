"""A program process: requests over stdio, what it writes beside the answers, and why it does not answer."""

from collections.abc import Callable
from typing import Any

from evolverpc_common.display_text import counted, plain
from protocol.errors import LimitExceeded
from rpc_server.process_limits import answer_bytes
from rpc_server.program.child_process import ChildProcess, Exit, Pipes
from rpc_server.program.process_output import BoundedLog, OpenRequest, ProcessOutput
from rpc_server.program.stdio import LOG_TAIL_BYTES, LineSplitter, fault_of, read_line, request_line

SILENCE_S = 3.0
"""Seconds without an answer to the first request after which the reason is reported."""

_MOST_SHOWN = 120
"""Characters of what was written in place of an answer."""


class ProgramProcess(ChildProcess):
    """A process that answers requests.

    `report_silence`: gets what came in place of the first answer, after `SILENCE_S`; without it no explanation is
    looked for, also not in `unanswered`.
    """

    def __init__(
        self, kill: Callable[[], None], pipes: Pipes, *, report_silence: Callable[[str], None] | None = None
    ) -> None:
        self._requests: dict[int, OpenRequest] = {}
        self._exit: Exit | None = None
        self._number = 0
        self._lines = LineSplitter(answer_bytes())
        self._report_silence = report_silence
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
            if self._number == 1 and self._report_silence is not None:
                self._loop.call_later(SILENCE_S, self._report_first, self._report_silence)
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
            instead = "nothing: does the program read stdin and flush each line?"
        return f"sent {oldest.method}; received {instead}" if instead else ""

    def _report_first(self, report: Callable[[str], None]) -> None:
        if self._exit is None and (explanation := self.unanswered()):
            report(explanation)

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
        message = read_line(line)
        if message is not None and self._is_answer(message):
            self._answer(message)
        else:
            # Text, an error about unreadable input, an echoed request, or an answer to no request.
            self._output.write(line + b"\n")
            is_log = message is None and self._number > 1 and not line.lstrip().startswith((b"{", b"["))
            if self._requests and line.strip() and not is_log:
                fault = fault_of(line) or "write its `id` and a `result`"
                self._stray = f"{_shown(line)}, which answers no request: {fault}"

    def _is_answer(self, message: dict[str, Any]) -> bool:
        number = message.get("id")
        return "method" not in message and isinstance(number, int | float) and number in self._requests

    def _answer(self, message: dict[str, Any]) -> None:
        self.collect_output()
        request = self._requests.pop(message["id"])
        if not self._requests:
            self._stray = ""
        if not request.answer.done():
            request.answer.set_result(message)


def _shown(line: bytes) -> str:
    return f"`{plain(line[: 4 * _MOST_SHOWN].decode('utf-8', 'replace'), limit=_MOST_SHOWN)}`"
