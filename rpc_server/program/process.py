"""A program process: requests over stdio, what it writes beside the answers, and why it does not answer."""

from collections.abc import Callable
from typing import Any

from protocol.errors import LimitExceeded
from rpc_server.program.answer_watch import AnswerWatch
from rpc_server.program.child_process import Child, ChildProcess, Exit, Pipes
from rpc_server.program.process_output import BoundedLog, OpenRequest, ProcessOutput
from rpc_server.program.stdio import LOG_TAIL_BYTES, LineSplitter, read_line, request_line
from rpc_server.settings.process_limits import answer_bytes


class ProgramProcess(ChildProcess):
    """A process that answers requests.

    `report_silence`: gets why requests are not answered, as `AnswerWatch` finds it; without it none is looked for.
    """

    def __init__(self, child: Child, pipes: Pipes, *, report_silence: Callable[[str], None] | None = None) -> None:
        self._requests: dict[int, OpenRequest] = {}
        self._exit: Exit | None = None
        self._number = 0
        self._lines = LineSplitter(answer_bytes())
        self._watch = AnswerWatch(self._lines, self._requests, report_silence)
        self._output = ProcessOutput(self._requests)
        super().__init__(child, pipes, on_output=self._take_output, on_log=self._output.feed, on_end=self._take_end)

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
        request = OpenRequest(method, self._loop.create_future(), log, self._loop.time())
        if self._exit is None:
            self._requests[self._number] = request
            self._watch.sent()
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
        """Return why a request of a command is not answered, and what to do; empty if nothing explains it."""
        return self._watch.explain()

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
        self._watch.end(status.status)
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
            self._watch.strayed(line, message)

    def _is_answer(self, message: dict[str, Any]) -> bool:
        number = message.get("id")
        return "method" not in message and isinstance(number, int | float) and number in self._requests

    def _answer(self, message: dict[str, Any]) -> None:
        self.collect_output()
        request = self._requests.pop(message["id"])
        self._watch.answered()
        if not request.answer.done():
            request.answer.set_result(message)
