"""Splits what a program writes into lines; a line beyond a limit is counted instead of kept."""

from collections.abc import Iterator
from dataclasses import dataclass

_EDGE_BYTES = 512


@dataclass(frozen=True)
class LongLine:
    """A line of `size` bytes, more than `limit`, that was not kept, but for its beginning and its end."""

    size: int
    limit: int
    head: bytes
    tail: bytes


class Lines:
    """Lines of at most `limit` bytes, out of chunks. `unfinished`: bytes of the line that has no end yet."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.unfinished = 0
        self._parts: list[bytes] = []
        self._head: bytes | None = None
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | LongLine]:
        """The lines that end in this chunk, without their newlines and without empty ones."""
        first, *others = chunk.split(b"\n")
        self._add(first)
        for part in others:
            if self.unfinished:
                yield self._line()
            self._add(part)

    def _add(self, part: bytes) -> None:
        if not part:
            return
        self.unfinished += len(part)
        if self._head is None:
            self._parts.append(part)
            if self.unfinished <= self.limit:
                return
            whole = b"".join(self._parts)
            self._parts.clear()
            self._head, part = whole[:_EDGE_BYTES], whole
        self._tail = (self._tail + part)[-_EDGE_BYTES:]

    def _line(self) -> bytes | LongLine:
        line: bytes | LongLine
        line = (
            b"".join(self._parts)
            if self._head is None
            else LongLine(self.unfinished, self.limit, self._head, self._tail)
        )
        self._parts, self.unfinished, self._head, self._tail = [], 0, None, b""
        return line
