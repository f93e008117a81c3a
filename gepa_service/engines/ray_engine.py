"""The engine of a Ray cluster: each attempt is a detached actor, named after its work, on one of the nodes.

Ray ends a process that has lost its cluster, and some of its calls wait for minutes. So a process of its own calls it,
which is started again as needed. Attempts depend neither on that process nor on the dispatcher.
"""

import importlib.util
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Self

from gepa_service.engines.engine import EngineRefused, EngineUnavailable
from gepa_service.model.work import Work

ANSWER_S = 5.0
"""Seconds without an answer after which the cluster counts as away."""

GIVE_UP_S = 60.0
"""Seconds without an answer after which a new process connects again; the first connection takes up to ten."""


class RayEngine:
    """Used in a `with` block, by one thread. Its attempts continue after the block.

    `address`: `ray://HOST:PORT` of the cluster's server for clients, or `auto` on one of its nodes. `run`: a function
    of a module that each node has; the actor calls it with what `arguments` returns for the work, and an event that is
    set to stop it. Ray keeps the arguments, so they hold no secret but a token.
    """

    def __init__(self, address: str, run: Callable[..., None], arguments: Callable[[Work], tuple[Any, ...]]) -> None:
        self._address, self._run, self._arguments = address, run, arguments
        self._caller: tuple[BaseProcess, Connection] | None = None
        self._asked: float | None = None
        """Since when an answer of the caller is due."""

    def __enter__(self) -> Self:
        """Connect. Raises `EngineRefused`; a cluster that is away is connected to later."""
        if importlib.util.find_spec("ray") is None:
            raise EngineRefused("Ray is not installed: pip install 'evolverpc[ray]' here and on each node")
        until = time.monotonic() + GIVE_UP_S
        while time.monotonic() < until:
            try:
                self._call("names")
                break
            except EngineRefused:
                self._end_caller()
                raise
            except EngineUnavailable:
                if self._caller is None:  # it is known to be away; else it has not answered yet
                    break
        return self

    def __exit__(self, *_: object) -> None:
        self._end_caller()

    def start(self, work: Work) -> None:
        """As of `Engine`."""
        self._call("start", _name(work), self._run, self._arguments(work))

    def stop(self, work: Work) -> None:
        """As of `Engine`."""
        self._call("stop", _name(work))

    def ended(self, running: Sequence[Work]) -> list[Work]:
        """As of `Engine`."""
        names = set(self._call("names"))
        return [work for work in running if _name(work) not in names]

    # --- the process that calls Ray -----------------------------------------------------------------------------------

    def _call(self, name: str, *arguments: Any) -> Any:
        """Return the result of a call. Raises `EngineUnavailable`."""
        if self._caller is None:
            self._start_caller()
        assert self._caller is not None  # noqa: S101
        pipe = self._caller[1]
        try:
            if self._asked is not None:
                self._answer(pipe)  # to the call before, or the connection
            pipe.send((name, arguments))
            self._asked = time.monotonic()
            return self._answer(pipe)
        except (EOFError, OSError):
            self._end_caller()
            raise EngineUnavailable(f"the connection to the Ray cluster at {self._address} was lost") from None

    def _answer(self, pipe: Connection) -> Any:
        assert self._asked is not None  # noqa: S101
        if not pipe.poll(ANSWER_S):
            if time.monotonic() - self._asked > GIVE_UP_S:
                self._end_caller()
            raise EngineUnavailable(f"the Ray cluster at {self._address} does not answer")
        answer = pipe.recv()
        self._asked = None
        if isinstance(answer, Exception):
            self._end_caller()
            raise type(answer)(f"the Ray cluster at {self._address} cannot be used: {answer}")
        return answer

    def _start_caller(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        pipe, of_caller = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(of_caller, self._address), name="ray", daemon=True)
        process.start()
        of_caller.close()
        self._caller, self._asked = (process, pipe), time.monotonic()

    def _end_caller(self) -> None:
        if self._caller is not None:
            process, pipe = self._caller
            pipe.close()
            process.kill()
            process.join()
            self._caller = self._asked = None


def _serve(pipe: Connection, address: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the dispatcher, whose end ends this process
    from gepa_service.engines.ray import serve

    serve(pipe, address)


def _name(work: Work) -> str:
    return f"{work.what}:{work.id}:{work.attempts}"
