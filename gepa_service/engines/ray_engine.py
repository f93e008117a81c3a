"""The engine of a Ray cluster: each attempt is a detached actor, named after its work, on one of the nodes.

Ray ends a process that has lost its cluster, and some of its calls wait for minutes. So a process of its own calls it,
which is started again as needed. Attempts depend neither on that process nor on the dispatcher.
"""

import contextlib
import importlib.util
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from gepa_service.engines.engine import EngineRefused, EngineUnavailable
from gepa_service.model.work import Work

ANSWER_S = 5.0
"""Seconds without an answer after which the cluster counts as away."""

GIVE_UP_S = 60.0
"""Seconds without an answer after which a new process connects again; the first connection takes up to ten."""

NAMESPACE = "evolverpc"
CPUS = 1
"""Of the resource `CPU` of a node that an attempt takes. If none is free it waits, and Ray's autoscaler adds nodes."""

MODE, TOKENS = "RAY_AUTH_MODE", ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
TOKEN_FILE = "~/.ray/auth_token"  # noqa: S105  where Ray looks if no variable is set


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
        self._call("start", _name(work), self._run, self._arguments(work))

    def stop(self, work: Work) -> None:
        self._call("stop", _name(work))

    def ended(self, running: Sequence[Work]) -> list[Work]:
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
    """Connect, then answer each call, `(name, arguments)`, by its result. An exception is the last answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the dispatcher, whose end ends this process
    calls: dict[str, Callable[..., Any]] = {"names": _names, "start": _start, "stop": _stop}
    try:
        _connect(address)
        pipe.send(None)
        while True:
            name, arguments = pipe.recv()
            pipe.send(calls[name](*arguments))
    except EOFError:  # the engine has ended
        return
    except EngineRefused as error:
        pipe.send(error)
    except Exception as error:  # noqa: BLE001  the engine raises it
        pipe.send(EngineUnavailable(f"{type(error).__name__}: {error}"))


def _connect(address: str) -> None:
    if os.environ.get(MODE) != "token":
        raise EngineRefused(
            "who reaches a port of Ray can run code on its nodes, so the cluster has to ask for a token. Make one by"
            f" `ray get-auth-token --generate`, copy {TOKEN_FILE} to each node, and there and here type, before `ray"
            f" start` and this command:\n  export {MODE}=token"
        )
    if not any(os.environ.get(name) for name in TOKENS) and not Path(TOKEN_FILE).expanduser().exists():
        raise EngineRefused(
            f"{MODE}=token, and there is no token: set {TOKENS[1]} to the file that holds that of the cluster"
        )
    import ray  # in this process alone

    try:
        ray.init(address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except RuntimeError as error:
        if "version" not in str(error).lower():
            raise
        raise EngineRefused(f"install the same versions of Ray and Python here and on the nodes: {error}") from error


def _names() -> list[str]:
    from ray.util import list_named_actors

    return [str(name) for name in list_named_actors()]


def _start(name: str, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    import ray

    options = {"name": name, "lifetime": "detached", "max_restarts": 0, "get_if_exists": True}
    placed = {"num_cpus": CPUS, "max_concurrency": 2, "scheduling_strategy": "SPREAD"}
    ray.remote(_AttemptActor).options(**options, **placed).remote(run, arguments)


def _stop(name: str) -> None:
    import ray

    with contextlib.suppress(ValueError):  # it has ended
        ray.get_actor(name).stop.remote()


class _AttemptActor:
    """The actor. Its attempt begins as it is made, so that none waits for a dispatcher that has died."""

    def __init__(self, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._stop = threading.Event()

        def attempt() -> None:
            try:
                run(*arguments, self._stop)
            except Exception:
                logging.exception("the attempt has ended")
            finally:
                # with its process the actor ends, also if the cluster is away, and its name is free
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)

        threading.Thread(target=attempt, name="attempt").start()

    def stop(self) -> None:
        """Have the attempt hand its work back."""
        self._stop.set()


def _name(work: Work) -> str:
    return f"{work.what}:{work.id}:{work.attempts}"
