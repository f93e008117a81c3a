"""The side of a Ray cluster: how it is called, and the actor that an attempt is. The one file that knows Ray."""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ray
from ray.util import list_named_actors

from gepa_service.engines.engine import EngineRefused, EngineUnavailable

NAMESPACE = "evolverpc"
CPUS = 1
"""Of the resource `CPU` of a node that an attempt takes. If none is free it waits, and Ray's autoscaler adds nodes."""

MODE, TOKENS = "RAY_AUTH_MODE", ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
TOKEN_FILE = "~/.ray/auth_token"  # noqa: S105  where Ray looks if no variable is set


def serve(pipe: Connection, address: str) -> None:
    """Connect, then answer each call, `(name, arguments)`, by its result. An exception is the last answer."""
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
    try:
        ray.init(address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except RuntimeError as error:
        if "version" not in str(error).lower():
            raise
        raise EngineRefused(f"install the same versions of Ray and Python here and on the nodes: {error}") from error


def _names() -> list[str]:
    return [str(name) for name in list_named_actors()]


def _start(name: str, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    options = {"name": name, "lifetime": "detached", "max_restarts": 0, "get_if_exists": True}
    placed = {"num_cpus": CPUS, "max_concurrency": 2, "scheduling_strategy": "SPREAD"}
    ray.remote(_AttemptActor).options(**options, **placed).remote(run, arguments)


def _stop(name: str) -> None:
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
