"""What a program writes: lines of bounded length, JSON-RPC messages among them."""

import re
from collections.abc import Iterator
from typing import Any

from protocol.errors import ParseError
from rpc_server import wire

LOG_TAIL_BYTES = 8 * 1024
"""Bytes of `log_tail`."""


class LineSplitter:
    """Splits chunks into lines, of each of which it keeps the first `limit` bytes; `begun`: of the unended one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.begun = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that end in this chunk, without newlines and empty lines."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._add(part)
            if self.begun:
                line = bytes(self.begun)
                self.begun.clear()
                yield line
        self._add(rest)

    def _add(self, part: bytes) -> None:
        room = self.limit - len(self.begun)
        self.begun += part if len(part) <= room else part[:room]


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ANSWER = re.compile(rb'\{"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,15})\s*,\s*"(?:result|error)"')


class UnreadableMessage(dict[str, Any]):
    """A response of which only the request id can be read; `problem`: why, and what to do."""

    def __init__(self, number: int, fault: str) -> None:
        super().__init__(jsonrpc="2.0", id=number)
        self.problem = f"cannot be read ({fault}): write each message as JSON on a line of its own"


def request_line(number: int, method: str, params: dict[str, Any]) -> bytes:
    """Return one request with its newline."""
    return wire.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + b"\n"


def read_line(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the message in a line of stdout, None if the line is text that the program printed; and its fault.

    A fault is why the line is no JSON-RPC message, or cannot be read; empty if it is one. A response that cannot be
    read is an `UnreadableMessage`, so that its request does not wait.
    """
    line = line.removeprefix(_BYTE_ORDER_MARK)
    try:
        message = wire.read(line)
    except ParseError as error:
        answer, fault = _ANSWER.search(line), str(error.details["reason"])
        return None if answer is None else UnreadableMessage(int(answer[1]), fault), fault
    if not isinstance(message, dict):
        return None, "no JSON object"
    return (message, "") if "jsonrpc" in message else (None, 'the member "jsonrpc": "2.0" is missing')
