"""A program of functions in this process, such as those of a notebook: threads take the place of processes."""

import asyncio
import contextlib
import inspect
import os
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from protocol.errors import ProgramFailed
from rpc_server.program.process import Exit, Pipes, ProgramProcess
from rpc_server.worker.executors import EventLoopExecutor, ThreadExecutor
from rpc_server.worker.functions import FunctionProgram
from rpc_server.worker.program_loading import Config
from rpc_server.worker.stdio_server import Channel, Server, failure

NAMES = (
    *("seed_candidate", "run", "score", "propose_new_texts", "make_reflective_dataset", "finalize", "write_texts"),
    *("component_descriptions", "version", "__version__"),
)
"""What a module of plain functions may define."""


def as_module(program: object, name: str) -> ModuleType:
    """Return a module with those of `NAMES` that a mapping holds as keys, or another object as attributes."""
    found = ModuleType(name)
    for each in NAMES:
        value = program.get(each) if isinstance(program, Mapping) else getattr(program, each, None)
        if value is not None:
            setattr(found, each, value)
    return found


class LiveLauncher:
    """Serves one program again and again, each time from new threads of this process.

    An example that hangs cannot be ended: it is reported, and its thread runs on. What the functions print is printed.
    """

    def __init__(self, module: ModuleType, config: dict[str, Any]) -> None:
        """`config`: as `rpc_server/worker/program_loading.py` reads it. Raises `ProgramFailed`: it is no program."""
        sources = {name: _source(getattr(module, name)) for name in NAMES if callable(getattr(module, name, None))}
        self._config = Config({**config, "digested": {**config["digested"], "functions": sources}})
        try:
            self._program = FunctionProgram(module, self._config)
        except Exception as problem:  # as a worker reports it
            raise ProgramFailed(**failure("program", problem)) from problem

    async def launch(self) -> ProgramProcess:
        """Serve from new threads."""
        pipes = Pipes()
        return ProgramProcess(_Threads(self._program, self._config, pipes), pipes)

    async def close(self) -> None:
        """Do nothing: threads end with their input."""


class _Threads:
    """Threads in the place of a child process."""

    def __init__(self, program: FunctionProgram, config: Config, pipes: Pipes) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._on_exit: Any = None
        os.close(pipes.child_stderr)  # nothing is logged
        server = Server(_ThreadChannel(pipes.child_stdin, pipes.child_stdout), program, config)
        threading.Thread(target=self._serve, args=(server, program.mode), name="program", daemon=True).start()

    def kill(self) -> None:
        """Give up what runs."""
        self._loop.call_soon(self._exit, Exit(None, message="does not answer, and cannot be ended in this process"))

    def watch(self, on_exit: Any) -> None:
        """Call `on_exit` once, when the input has ended or was given up."""
        self._on_exit = on_exit

    def _serve(self, server: Server, mode: str) -> None:
        try:
            if mode == "async":
                EventLoopExecutor().serve(server)
            else:
                ThreadExecutor().answer_all(server)
        finally:
            server.channel.close()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._exit, Exit(0))

    def _exit(self, status: Exit) -> None:
        if not self._ended:
            self._ended = True
            self._on_exit(status)


class _ThreadChannel(Channel):
    """A channel whose end is not the end of the process."""

    def close(self) -> None:
        with self._lock:
            super().close()

    def lost(self) -> None:
        """Drop the answer: nothing waits for it any more."""


def _source(function: Any) -> str:
    """Return a text that changes when the function does, as far as it can be known."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt, or a callable object
        code = getattr(function, "__code__", None)
        return code.co_code.hex() + repr(code.co_consts) if code is not None else type(function).__qualname__
