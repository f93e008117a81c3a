"""The channel to the server, the streams of user code, and the answers to requests, in which exceptions are errors."""

from __future__ import annotations

import contextlib
import contextvars
import io
import json
import os
import select
import sys
import threading
from typing import Any, BinaryIO, Coroutine, Iterator, Protocol

from . import json_values
from .errors import Cancelled, ContractError, ProgramProblem, describe
from .infrastructure_failures import classify
from .json_values import MARK, unpack_params
from .program_loading import Config

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


class Channel:
    """One JSON message a line, read from `source` and written to the descriptor `sink`.

    Only the process that made it may respond: a process that user code forked closes it at birth, and exits if it would
    respond.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._lines: BinaryIO | None = None

    @classmethod
    def adopt_stdio(cls) -> Channel:
        """Use this process's stdin and stdout as the channel; user code gets no input, and the log (stderr)."""
        source, sink = os.dup(0), os.dup(1)  # `dup` gives descriptors that no other program inherits
        _redirect_user_streams(2)
        return cls(source, sink)

    @classmethod
    def adopt_pipes(cls, source: int, sink: int, log: int) -> Channel:
        """Use a forked process's own three pipes."""
        for descriptor in (source, sink):
            os.set_inheritable(descriptor, False)
        _redirect_user_streams(log)
        os.close(log)
        return cls(source, sink)

    def close(self) -> None:
        """Close both descriptors, once."""
        for descriptor in (self._source, self._sink):
            if descriptor >= 0:
                with contextlib.suppress(OSError):  # user code closed it
                    os.close(descriptor)
        self._source = self._sink = -1

    def lost(self) -> None:
        """End the process: the server is gone, or user code closed the descriptor."""
        os._exit(1)

    def begin(self, request: int) -> None:
        """Have what the code that runs from here writes belong to this request."""
        current_request.set(request)

    @property
    def source(self) -> int:
        """The descriptor to wait on, for an event loop that reads itself."""
        return self._source

    def readline(self) -> bytes:
        """Wait for the next message; empty at the end of input."""
        if self._lines is None:
            self._lines = open(self._source, "rb", buffering=1 << 16, closefd=False)  # noqa: SIM115  # as long as the process
        return self._lines.readline()

    def requests(self) -> Iterator[dict[str, Any]]:
        """Yield the requests until the end of input."""
        while line := self.readline():
            yield parse(line)

    def answer(self, request_id: Any, member: str, text: str) -> None:
        """Write a response whose `member` ("result" or "error") is the JSON in `text`."""
        if os.getpid() != self._pid:
            _flush()
            os._exit(0)  # a process that user code forked returned from it
        head = '{"jsonrpc":"2.0","id":%s,"%s":' % (json_values.to_text(request_id, "id"), member)
        _flush()
        self._write(json_values.to_bytes("%s%s}\n" % (head, text)))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        with self._lock:
            while view:
                try:
                    view = view[os.write(self._sink, view) :]
                except OSError:
                    self.lost()
                    return


def _redirect_user_streams(log: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(log, 1)
    if log != 2:
        os.dup2(log, 2)


def _flush() -> None:
    """Send what the program printed before its response, so that it belongs to the right example."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # user code replaced or closed it
            stream.flush()


_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_MARKED = "has markers"
_PROGRAM_FAILED = -32025
_CHARGED = ("make_reflective_dataset", "propose_new_texts")
"""Methods whose result states what the program's models took for them; those of examples state it by example."""

CALL_CANCELLED = {"code": -32027, "message": "Call cancelled", "data": {"retryable": True}}
_DEEP = 5_000  # levels of recursion for reading; the server bounds what it sends


def parse(line: bytes) -> dict[str, Any]:
    """Parse one request. The server nests deeper than Python's recursion limit, which is raised meanwhile."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEP))
    try:
        request: dict[str, Any] = json.loads(line)
    finally:
        sys.setrecursionlimit(limit)
    request[_MARKED] = MARK.encode() in line  # most requests have no marker to look for
    return request


class Executor(Protocol):
    """How a program's functions are run."""

    cancellation: tuple[type[BaseException], ...]
    """Exceptions raised in a request's code when it is cancelled."""

    async def resolve(self, value: Any) -> Any:
        """Return the value itself, or its result if it is awaitable."""

    async def within(self, limit_s: float | None, work: Coroutine[Any, Any, Any]) -> Any:
        """Run the work; raises `TimeLimit` if it takes longer, `Cancelled` if the server cancels it."""


class Server:
    """Answers for one program on one channel."""

    def __init__(self, channel: Channel, program: Any, config: Config) -> None:
        self.channel = channel
        self._program = program
        self._config = config

    async def reply(self, request: dict[str, Any], executor: Executor) -> None:
        """Execute a request and respond."""
        name, params = request["method"], request.get("params") or {}
        self.channel.begin(request["id"])
        try:
            if (fault := unpack_params(params) if request.get(_MARKED) else None) is not None:
                raise ContractError(_INVALID_PARAMS, "Invalid params", errors=[{"path": "", "message": fault}])
            if name == "discover":
                text = json_values.to_text(self._discovery(), "discover")
            elif name in self._program.methods:
                text = await self._text(name, params, executor)
            else:
                raise ContractError(_METHOD_NOT_FOUND, "Method not found", method=name)
        except ContractError as error:
            self.respond_error(request, error.wire)
        except BaseException as problem:  # noqa: BLE001  # user code may raise anything, and the server is waiting
            stopped = isinstance(problem, (Cancelled, *executor.cancellation))
            self.respond_error(request, CALL_CANCELLED if stopped else self._program_failed(name, problem))
        else:
            self.channel.answer(request["id"], "result", text)

    async def _text(self, name: str, params: dict[str, Any], executor: Executor) -> str:
        """Return the result of a method of the program, with the usage of models that it called beside its examples."""
        method = self._program.methods[name]
        if name not in _CHARGED:
            return str(await method(params, executor))
        with self._config.calls() as calls:
            text = str(await method(params, executor))
        usage = calls.usage
        return text if usage is None else '%s,"usage":%s}' % (text[:-1], json_values.to_text(usage, "usage"))

    def respond_error(self, request: dict[str, Any], error: dict[str, Any]) -> None:
        """Respond with an error."""
        self.channel.answer(request["id"], "error", json_values.to_text(error, "error"))

    def _program_failed(self, stage: str, problem: BaseException) -> dict[str, Any]:
        classification = classify(problem)
        returned = failure(stage, problem, classification.evidence)
        return {
            "code": _PROGRAM_FAILED,
            "message": returned["message"],
            "data": {"retryable": classification.transient, **returned},
        }

    def _discovery(self) -> dict[str, Any]:
        """Describe the program; the server adds what it states itself, as for every program over stdio."""
        program = self._program
        program.prepare()
        info = program.info
        components = [
            {"name": name, "kind": "text", **({"description": about} if about else {})}
            for name, about in ((name, program.descriptions.get(name)) for name in info["seed_candidate"])
        ]
        return {
            "program": {**info, "components": components},
            "capabilities": [*program.capabilities, "exact_values", *(["cancel"] if program.mode == "async" else [])],
            "limits": {"max_concurrency": program.max_concurrency, "whole_batches": program.whole_batches},
        }


def failure(stage: str, problem: BaseException, evidence: str | None = None) -> dict[str, Any]:
    """Return `{stage, message, traceback}` for people; the message ends with the evidence for the error's kind."""
    if isinstance(problem, ProgramProblem):
        if problem.__cause__ is None:
            return {"stage": problem.stage, "message": str(problem)}
        evidence = problem.evidence or evidence
        stage, problem = problem.stage, problem.__cause__
    returned = describe(problem, evidence)
    return {
        "stage": stage,
        "message": "%s: %s" % (returned["type"], returned["message"]),
        "traceback": returned["traceback"],
    }
