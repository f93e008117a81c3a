"""Calls to a Ray cluster, made by a process of its own.

Ray ends a process that has lost its cluster, and some of its calls wait for minutes. So another process makes the
calls, which is started again as needed. What it made without a lifetime of its own ends with it.
"""

import importlib.util
import logging
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

ANSWER_S = 5.0
"""Seconds without an answer after which the cluster counts as away."""

GIVE_UP_S = 60.0
"""Seconds without an answer after which a new process connects again; the first connection takes up to ten."""

NAMESPACE = "evolverpc"

MODE, TOKENS = "RAY_AUTH_MODE", ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
TOKEN_FILE = "~/.ray/auth_token"  # noqa: S105  where Ray looks if no variable is set


class ClusterUnavailable(Exception):
    """The cluster cannot be reached now; trying later can help."""


class ConnectionFailed(ClusterUnavailable):
    """The cluster answered, but Ray did not start its server for this client; another connection can succeed."""


class ClusterRefused(ClusterUnavailable):
    """The cluster cannot be used as it is configured; the text has the reason, and what to do."""


class RayCaller:
    """Used by one thread.

    `address`: `ray://HOST:PORT` of the cluster's server for clients, or `auto` on one of its nodes. `functions`: what
    it can call, by name: functions of modules, which run in a process that is connected.
    """

    def __init__(self, address: str, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._address = address
        self._functions = dict(functions)
        self._caller: tuple[BaseProcess, Connection] | None = None
        self._asked: float | None = None
        """Since when an answer of the process is due."""

    def connect(self, function: str) -> None:
        """Wait until this function, without arguments, is answered, or the cluster is known to be away.

        Raises `ClusterRefused`.
        """
        until = time.monotonic() + GIVE_UP_S
        while time.monotonic() < until:
            try:
                self.call(function)
                return
            except ClusterRefused:
                self.close()
                raise
            except ClusterUnavailable:
                if not self.is_connecting:  # it is known to be away; else it has not answered yet
                    return

    @property
    def is_connecting(self) -> bool:
        """Whether an answer may still come, after a call that raised `ClusterUnavailable`."""
        return self._caller is not None

    def call(self, name: str, *arguments: Any) -> Any:
        """Return the result of a function. Raises `ClusterUnavailable`."""
        if self._caller is None:
            self._start()
        assert self._caller is not None  # noqa: S101
        pipe = self._caller[1]
        try:
            if self._asked is not None:
                self._answer(pipe)  # to the call before, or the connection
            pipe.send((name, arguments))
            self._asked = time.monotonic()
            return self._answer(pipe)
        except (EOFError, OSError):
            self.close()
            raise ClusterUnavailable(f"the connection to the Ray cluster at {self._address} was lost") from None

    def close(self) -> None:
        """End the process; a later call starts another one."""
        if self._caller is not None:
            process, pipe = self._caller
            pipe.close()
            process.kill()
            process.join()
            self._caller = self._asked = None

    def _answer(self, pipe: Connection) -> Any:
        assert self._asked is not None  # noqa: S101
        if not pipe.poll(ANSWER_S):
            if time.monotonic() - self._asked > GIVE_UP_S:
                self.close()
            raise ClusterUnavailable(f"the Ray cluster at {self._address} does not answer")
        answer = pipe.recv()
        self._asked = None
        if isinstance(answer, Exception):
            self.close()
            raise type(answer)(f"the Ray cluster at {self._address} cannot be used: {answer}")
        return answer

    def _start(self) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ClusterRefused("Ray is not installed: pip install 'evolverpc[ray]' here and on each node")
        spawn = multiprocessing.get_context("spawn")
        pipe, of_caller = spawn.Pipe()
        arguments = of_caller, self._address, self._functions
        process = spawn.Process(target=_serve, args=arguments, name="ray", daemon=True)
        process.start()
        of_caller.close()
        self._caller, self._asked = (process, pipe), time.monotonic()


def _serve(pipe: Connection, address: str, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Connect, then answer each call, `(name, arguments)`, by its result. An exception is the last answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process whose end ends this one
    try:
        _connect(address)
        pipe.send(None)
        while True:
            name, arguments = pipe.recv()
            pipe.send(functions[name](*arguments))
    except EOFError:  # the caller has ended
        return
    except ClusterRefused as error:
        pipe.send(error)
    except Exception as error:  # noqa: BLE001  the caller raises it
        last = "".join(str(error).strip().splitlines()[-1:])  # of what may be the traceback of a server
        kind = ConnectionFailed if isinstance(error, ConnectionAbortedError) else ClusterUnavailable
        pipe.send(kind(f"{type(error).__name__}: {last}"))


def _connect(address: str) -> None:
    if os.environ.get(MODE) != "token":
        raise ClusterRefused(
            "who reaches a port of Ray can run code on its nodes, so the cluster has to ask for a token. Make one by"
            f" `ray get-auth-token --generate`, copy {TOKEN_FILE} to each node, and there and here type, before `ray"
            f" start` and this command:\n  export {MODE}=token"
        )
    if not any(os.environ.get(name) for name in TOKENS) and not Path(TOKEN_FILE).expanduser().exists():
        raise ClusterRefused(
            f"{MODE}=token, and there is no token: set {TOKENS[1]} to the file that holds that of the cluster"
        )
    warnings.simplefilter("ignore")  # of a connection that takes long: the exception is enough
    import ray  # in this process alone

    try:
        ray.init(address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except RuntimeError as error:
        if "version" not in str(error).lower():
            raise
        raise ClusterRefused(f"install the same versions of Ray and Python here and on the nodes: {error}") from error
