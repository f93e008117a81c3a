"""The line of frames to the server, kept where user code cannot write on it by accident."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Any, BinaryIO

from . import encode


class Channel:
    """One JSON message a line, read from `source` and written to the descriptor `sink`.

    Only the process that made it may answer: a process that user code forked closes it at birth, and ends where it
    would answer.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._lines: BinaryIO | None = None

    @classmethod
    def take_over(cls) -> Channel:
        """This process's stdin and stdout become the channel; in their place come nothing and the log (stderr)."""
        source, sink = os.dup(0), os.dup(1)  # `dup` gives descriptors that no other program inherits
        _leave_to_user(2)
        return cls(source, sink)

    @classmethod
    def adopt(cls, source: int, sink: int, log: int) -> Channel:
        """A forked process's own three pipes."""
        for descriptor in (source, sink):
            os.set_inheritable(descriptor, False)
        _leave_to_user(log)
        os.close(log)
        return cls(source, sink)

    def guard_forks(self) -> None:
        """Close the channel in every process forked from this one."""
        os.register_at_fork(after_in_child=self.close)

    def close(self) -> None:
        """Let go of both descriptors, once."""
        for descriptor in (self._source, self._sink):
            if descriptor >= 0:
                with contextlib.suppress(OSError):  # user code closed it
                    os.close(descriptor)
        self._source = self._sink = -1

    @property
    def source(self) -> int:
        """The descriptor to wait on, for an event loop that reads by itself."""
        return self._source

    def readline(self) -> bytes:
        """The next message, waiting for it; empty at the end of input."""
        if self._lines is None:
            self._lines = open(self._source, "rb", buffering=1 << 16, closefd=False)  # noqa: SIM115  # as long as the process
        return self._lines.readline()

    def answer(self, request_id: Any, member: str, text: str) -> None:
        """Write a response whose `member` ("result" or "error") is the JSON in `text`."""
        if os.getpid() != self._pid:
            _flush()
            os._exit(0)  # a process forked by user code came back out of it: it is not the one that was asked
        head = '{"jsonrpc":"2.0","id":%s,"%s":' % (encode.to_text(request_id, "id"), member)
        _flush()
        self._write(encode.to_bytes("%s%s}\n" % (head, text)))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        with self._lock:
            while view:
                try:
                    view = view[os.write(self._sink, view) :]
                except OSError:
                    os._exit(1)  # the server is gone, or user code closed the descriptor: nobody to answer


def _leave_to_user(log: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(log, 1)
    if log != 2:
        os.dup2(log, 2)


def _flush() -> None:
    """What the program printed is on its way before its answer: so it is found with the example it belongs to."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # user code replaced or closed it
            stream.flush()
