"""The worker's start: read the configuration, import the program, then fork or serve."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import socket
import sys
from typing import Any, Iterator

from .adapter_programs import AdapterProgram
from .errors import ProgramProblem
from .executors import EventLoopExecutor, MainThreadExecutor, ThreadExecutor
from .function_programs import FunctionProgram
from .parent_death import die_with_parent
from .program_loading import Config, import_adapter, import_program
from .stdio_server import Channel, Server, failure, parse, replace_streams
from .watching import watch
from .zygote import ProcessReaper, Zygote, may_fork

_RARE = 1_000_000
"""New objects between two garbage collections while the program is imported; Python's default is some hundreds."""


def main(control_descriptor: int) -> None:
    """Serve until the end of input. The result of the start goes to the control socket as one line of JSON."""
    die_with_parent()
    control = socket.socket(fileno=control_descriptor)
    control.set_inheritable(False)
    channel = Channel.adopt_stdio()
    replace_streams()
    faulthandler.enable()  # a crash in C code leaves its Python stack in the log
    config = Config(parse(channel.readline()))
    sys.argv[:] = [config.program or config.adapter or ""]  # ours mean nothing to libraries that look at them
    watch()
    try:
        with _rare_collections(), _absence_explained():
            program = _load(config)
    except BaseException as problem:  # noqa: BLE001  # a module may raise anything while it is imported
        _send(control, {"failed": failure("import", problem)})
        sys.exit(1)
    if not may_fork():
        _send(control, {"ready": "serve", "mode": program.mode})
        control.close()
    else:
        _send(control, {"ready": "fork", "mode": program.mode})
        pipes = Zygote(control, ProcessReaper() if config.jailed else None).run()
        if pipes is None:
            os._exit(0)
        channel.close()  # the parent's, which stays open there
        channel = Channel.adopt_pipes(*pipes)
    serve(channel, program, config)


def serve(channel: Channel, program: Any, config: Config) -> None:
    """Answer on the channel with the program's executor."""
    os.register_at_fork(after_in_child=channel.close)
    executors: dict[str, type[MainThreadExecutor | ThreadExecutor | EventLoopExecutor]] = {
        "sync": MainThreadExecutor,
        "threads": ThreadExecutor,
        "async": EventLoopExecutor,
    }
    executors[program.mode]().serve(Server(channel, program, config))


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage once per million objects: with the usual thresholds, it takes a quarter of large imports."""
    usual, rare = gc.get_threshold(), (_RARE, 10, 10)
    gc.set_threshold(*rare)
    yield
    if gc.get_threshold() == rare:  # the program has set none of its own
        gc.set_threshold(*usual)


@contextlib.contextmanager
def _absence_explained() -> Iterator[None]:
    """Add to the error of a program that imports `evolverpc` without having it what to do."""
    try:
        yield
    except ModuleNotFoundError as problem:
        if problem.name != "evolverpc":
            raise
        advice = "its environment has no evolverpc: install it there, or copy evolverpc/__init__.py beside the program"
        raise ProgramProblem("import", "", evidence=advice + " as evolverpc.py") from problem


def _load(config: Config) -> Any:
    if config.kind == "dspy":
        # Only here: its imports would shadow user files of the same names.
        from .dspy_programs import DspyProgram

        return DspyProgram(config)
    if config.program is not None:
        return FunctionProgram(import_program(config.program, config.root), config)
    if config.adapter is not None:
        make, arguments = import_adapter(config.adapter, config.adapter_args, config.root)
        return AdapterProgram(make, arguments, config)
    raise ValueError("neither a program nor an adapter is configured")


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    control.sendall(json.dumps(message).encode() + b"\n")
