"""What a process writes beside its answers: kept with the request that wrote it if that is known, and its tail."""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evolverpc_common.output_tail import OutputTail
from rpc_server.program.child_process import Exit
from rpc_server.program.stdio import LOG_TAIL_BYTES

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
