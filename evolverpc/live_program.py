"""Functions of this process, such as those of a notebook: a program of them, in threads, and a proposer of texts."""

import asyncio
import contextlib
import contextvars
import dis
import functools
import hashlib
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard

from protocol.errors import ProgramFailed
from rpc_server.program.child_process import Exit, Pipes
from rpc_server.program.process import ProgramProcess
from rpc_server.program.program import Program
from rpc_server.worker.dspy_programs import DspyProgram
from rpc_server.worker.executors import EventLoopExecutor, ThreadExecutor
from rpc_server.worker.function_programs import TEXTS_ADVICE, FunctionProgram, fault_of_texts, proposed
from rpc_server.worker.network_calls import ExampleCalls
from rpc_server.worker.program_loading import Config
from rpc_server.worker.record_images import put_back
from rpc_server.worker.stdio_server import Channel, Server, failure, frames
from rpc_server.worker.watching import watch

_DIGITS = 16
_EMPTY = CellType()


def live_digests(parts: Mapping[str, object]) -> dict[str, str]:
    """Return the beginning of a SHA-256 for each part, by names such as `function run`, and for what the parts use.

    `parts`: functions, methods and objects by name. What they use are the functions, classes and constants of their own
    modules that their source names, and those that these name in turn. A constant is a text, a number, or a tuple or
    set of these that no function assigns. Lists and dicts of JSON that hold something are under `data NAME`: as they
    may be filled during a run, a change of them is no other program. Other objects, and functions without a source,
    such as those typed at Python's prompt, are not covered.
    """
    walk = _Walk({_function_of(part).__module__ for part in parts.values()})
    for name, part in sorted(parts.items()):
        walk.add(name, part)
    return {
        name: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        for name, text in walk.texts.items()
        if name not in walk.assigned
    }


class _Walk:
    """Follows what code names. `texts`: found by name; `assigned`: names of values that a function assigns."""

    def __init__(self, modules: set[str | None]) -> None:
        self._modules = modules
        self._seen: set[int] = set()
        self.texts: dict[str, str] = {}
        self.assigned: set[str] = set()

    def add(self, name: str, part: Any) -> None:
        """Add a function, a class or an object of a class, under this name, with what it uses."""
        value = _function_of(part)
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, FunctionType):
            self._put(f"function {name}", _source(value))
            self._follow(name, value)
        elif isinstance(value, type):
            self._put(f"class {name}", _source(value) or repr(inspect.get_annotations(value)))
            for key, member in vars(value).items():
                if not (key.startswith("__") and _is_constant(member)):  # such as a class's place in its file
                    self._use(f"{name}.{key}", member)
            for base in value.__bases__:
                self._use(base.__name__, base)
        else:
            self.add(name, type(value))
        if isinstance(part, MethodType):
            self._use(type(part.__self__).__name__, type(part.__self__))

    def _use(self, name: str, value: Any) -> None:
        """Add a value that code names, unless it belongs to another module or may change during a run."""
        if _is_constant(value):
            self._put(f"value {name}", repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value))
            return
        if isinstance(value, list | dict):
            if value and (text := _as_json(value)):
                self._put(f"data {name}", text)
            return
        value = _function_of(value)
        owner = value if isinstance(value, FunctionType | type) else type(value)
        if owner.__module__ in self._modules:
            self.add(name if owner is value else owner.__name__, owner)

    def _follow(self, name: str, function: FunctionType) -> None:
        named, assigned = _names_in(function.__code__)
        self.assigned.update(f"value {each}" for each in assigned)
        used = {each: function.__globals__[each] for each in named & function.__globals__.keys()}
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closed_over = {each: cell.cell_contents for each, cell in cells if cell != _EMPTY}
        used |= {getattr(value, "__name__", each): value for each, value in closed_over.items()}
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        used |= {f"{name}, default {number}": default for number, default in enumerate(defaults)}
        for each, value in sorted(used.items()):
            self._use(each, value)

    def _put(self, name: str, text: str) -> None:
        self.texts[name] = self.texts.get(name, "") + text


def _function_of(value: Any) -> Any:
    """Return what a method, a property or a partial call calls; any other value itself."""
    while True:
        if isinstance(value, MethodType | staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, functools.partial | functools.cached_property):
            value = value.func
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools._lru_cache_wrapper):
            value = value.__wrapped__
        else:
            return value


def _as_json(value: object) -> str:
    """Return the value as JSON; "" if it holds anything else."""
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return ""


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_constant, value))
    return type(value) in (str, bytes, int, float, bool)


def _names_in(code: CodeType) -> tuple[set[str], set[str]]:
    """Return the outer names that a function, or a function within it, reads, and those that it assigns."""
    steps = [*dis.get_instructions(code)]
    named = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    assigned = {step.argval for step in steps if step.opname == "STORE_GLOBAL"}
    assigned |= {step.argval for step in steps if step.opname == "STORE_DEREF"} & {*code.co_freevars}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            inner = _names_in(part)
            named, assigned = named | inner[0], assigned | inner[1]
    return named, assigned


def _source(value: FunctionType | type) -> str:
    """Return the source; "" if it was typed at a prompt, or made by a library."""
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return ""


NAMES = (
    *("seed_candidate", "run", "score", "propose_new_texts", "make_reflective_dataset", "finalize", "write_texts"),
    *("component_descriptions", "version", "__version__", "deterministic"),
)
"""What a module of plain functions may define."""


DSPY_NAMES = ("student", "metric", "reflection_lm", "instruction_proposer")
"""What a DSPy program consists of, the last two of them if it proposes its own texts."""


def is_dspy(program: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether it is a DSPy program: a mapping of `DSPY_NAMES`."""
    return isinstance(program, Mapping) and "student" in program


_running: contextvars.ContextVar["tuple[_ThreadChannel, int] | None"] = contextvars.ContextVar("running", default=None)
"""The channel and the id of the request that runs here."""


class LiveLauncher:
    """Serves one program again and again, each time from new threads of this process.

    An example that hangs cannot be ended: it is reported, and its thread runs on. What the functions print is printed,
    and kept with the example.
    """

    def __init__(
        self,
        program: object,
        config: dict[str, Any],
        *,
        rows: Mapping[str, list[Any]],
        context: contextvars.Context,
    ) -> None:
        """Read the program: a mapping with some of `NAMES` or `DSPY_NAMES`, or an object with some of `NAMES`.

        `config`: as `rpc_server/worker/program_loading.py` reads it. `rows`: objects that a DSPy program gets as they
        are, by split. `context`: that of the caller, in which the program runs. Raises `ProgramFailed`: it is no
        program.
        """
        self._context = context
        self._streams: dict[str, _LoggedStream] = {}
        names = DSPY_NAMES if is_dspy(program) else NAMES
        get = program.get if isinstance(program, Mapping) else functools.partial(getattr, program)
        parts = {name: part for name in names if (part := get(name, None)) is not None}
        functions = live_digests({name: part for name, part in parts.items() if callable(part)})
        config = {**config, "functions": functions}
        try:
            watch()
            if is_dspy(program):
                student, objects = parts["student"], {name: parts.get(name) for name in DSPY_NAMES[1:]}
                self._config = Config({**config, "program": student, "rows": rows, **objects})
                self._program: Any = context.run(DspyProgram, self._config)
            else:
                self._config = Config(config)
                module = ModuleType(config["program"])
                module.__dict__.update(parts)
                self._program = FunctionProgram(module, self._config)
        except Exception as problem:  # as a worker reports it
            raise ProgramFailed(**failure("program", problem)) from problem

    async def launch(self) -> ProgramProcess:
        """Serve from new threads."""
        for name in ("stdout", "stderr"):
            if name not in self._streams:
                stream = self._streams[name] = _LoggedStream(getattr(sys, name))
                setattr(sys, name, stream)
        loop, pipes = asyncio.get_running_loop(), Pipes()

        def give_up() -> None:
            loop.call_soon(process.ended, Exit(None, message="does not answer, and cannot be ended in this process"))

        process = ProgramProcess(give_up, pipes)
        channel = _ThreadChannel(*pipes.child_ends)
        server = Server(channel, self._program, self._config)
        ended = functools.partial(loop.call_soon_threadsafe, process.ended, Exit(0))
        serve = (_serve, server, self._program.mode, ended)
        threading.Thread(target=self._context.copy().run, args=serve, name="program", daemon=True).start()
        return process

    async def close(self) -> None:
        """Put the streams of this process back; threads end with their input."""
        for name, stream in self._streams.items():
            if getattr(sys, name) is stream:  # not replaced since
                setattr(sys, name, stream.inner)
        self._streams.clear()


class _LoggedStream:
    """A stream of this process that also gives a request's log what the request writes; `inner`: the stream itself."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def write(self, text: str) -> Any:
        """Write to the stream, and to the log of the request that runs here."""
        if (running := _running.get()) is not None:
            channel, request = running
            channel.log(request, text)
        return self.inner.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _serve(server: Server, mode: str, ended: Callable[[], None]) -> None:
    """Serve until the input has ended, in the place of a child process."""
    try:
        if mode == "async":
            EventLoopExecutor().serve(server)
        else:
            ThreadExecutor().answer_all(server)
    finally:
        server.channel.close()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            ended()


class _ThreadChannel(Channel):
    """A channel whose end is not the end of the process. `log`: the descriptor for what requests write."""

    def __init__(self, source: int, sink: int, log: int) -> None:
        super().__init__(source, sink)
        self._log = log

    def begin(self, request: int) -> None:
        _running.set((self, request))

    def log(self, request: int, text: str) -> None:
        """Give a request's log what it wrote; do nothing after the end."""
        content = text.encode("utf-8", "backslashreplace")
        with self._lock, contextlib.suppress(BrokenPipeError):
            for frame in frames(request, content) if self._log >= 0 else ():
                os.write(self._log, frame)

    def close(self) -> None:
        with self._lock:
            super().close()
            if self._log >= 0:
                os.close(self._log)
                self._log = -1

    def lost(self) -> None:
        """Drop the answer: nothing waits for it any more."""


Propose = Callable[[dict[str, str], dict[str, Any], list[str]], Any]
"""Takes a candidate, its reflective dataset and the components to improve; returns new texts by component."""

PROPOSE_METHOD = "propose_new_texts"


class WithProposer:
    """The program, with `proposals`: each is made in a thread of its own."""

    def __init__(self, program: Program, propose: Propose) -> None:
        self._program = program
        self._propose = propose
        self.info = program.info
        self.capabilities = program.capabilities | {"proposals"}
        self.limits = program.limits
        self.splits = program.splits
        self.evaluate, self.score, self.close = program.evaluate, program.score, program.close

    @property
    def ready(self) -> bool:
        """Whether the program is."""
        return self._program.ready

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Propose new texts, or have the program answer.

        Raises:
            RpcError: the program's own, or `ProgramFailed` if the function raised or returned something else.
        """
        if method != PROPOSE_METHOD:
            return await self._program.call(method, params)
        components = params["components_to_update"]
        dataset = put_back(params["reflective_dataset"], params.get("images") or {})
        calls = ExampleCalls(takes_strays=False)
        try:
            with calls:
                texts = await asyncio.to_thread(self._propose, dict(params["candidate"]), dataset, list(components))
                if inspect.isawaitable(texts):
                    texts = await texts
        except Exception as problem:  # the user's function may raise anything
            raise ProgramFailed(**failure("propose", problem)) from problem
        if (fault := fault_of_texts(texts, components)) is not None:
            raise ProgramFailed(f"propose() returned {fault}; {TEXTS_ADVICE}", stage="propose")
        return {**proposed(texts), "usage": calls.usage}
