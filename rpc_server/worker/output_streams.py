"""The stdout and stderr of the user's code: what is written within a request is framed with the request's id."""

from __future__ import annotations

import contextvars
import io
import os
import select
import sys
from typing import Any, Iterator

current_request: contextvars.ContextVar[int | None] = contextvars.ContextVar("request", default=None)
"""The id of the request in which code runs; None in a thread that the program started without its context."""

_PIPE_BYTES = getattr(select, "PIPE_BUF", 512)
"""Bytes that a pipe takes at once, so that frames of threads and forked processes never mix."""
_HEADER_BYTES = 24


def frames(request: int, content: bytes) -> Iterator[bytes]:
    """Yield the content in frames of the request, each of which a pipe takes at once."""
    size = _PIPE_BYTES - _HEADER_BYTES
    for start in range(0, len(content), size):
        part = content[start : start + size]
        yield b"\0%d:%d\0%b" % (request, len(part), part)


class _OutputFile(io.RawIOBase):
    """Writes to a descriptor at once, framed by a NUL, `ID:LENGTH` and a NUL while a request runs."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self.name = name

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        content = memoryview(data).cast("B")
        request = current_request.get()
        if request is None:
            self._write(content)
            return len(content)
        for frame in frames(request, content.tobytes()):
            self._write(frame)
        return len(content)

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


def replace_streams() -> None:
    """Put such files in place of `sys.stdout` and `sys.stderr`, before user code keeps references to them."""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        file = _OutputFile(descriptor, "<%s>" % name)
        stream = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", write_through=True)
        setattr(sys, name, stream)
