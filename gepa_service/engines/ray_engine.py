"""The engine of a Ray cluster: each attempt is a detached actor, named after its work, on one of the nodes.

Attempts depend neither on the process that calls Ray nor on the dispatcher.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from gepa_service.engines.engine import EngineRefused, EngineUnavailable
from gepa_service.model.work import Work
from sandbox_runtime.nodes.ray_caller import ClusterRefused, ClusterUnavailable, RayCaller

CPUS = 1
"""Of the resource `CPU` of a node that an attempt takes. If none is free it waits, and Ray's autoscaler adds nodes."""


class RayEngine:
    """Its attempts continue after the `with` block.

    `address`: as of `RayCaller`. `run`: a function of a module that each node has; the actor calls it with what
    `arguments` returns for the work, and an event that is set to stop it. Ray keeps the arguments, so they hold no
    secret but a token.
    """

    def __init__(self, address: str, run: Callable[..., None], arguments: Callable[[Work], tuple[Any, ...]]) -> None:
        self._caller = RayCaller(address, {"state": _state, "start": _start, "stop": _stop})
        self._run, self._arguments = run, arguments
        self.nodes = 0

    def __enter__(self) -> Self:
        """Connect. Raises `EngineRefused`; a cluster that is away is connected to later."""
        with _translated():
            self._caller.connect("state")
        return self

    def __exit__(self, *_: object) -> None:
        self._caller.close()

    def start(self, work: Work) -> None:
        self._call("start", _name(work), self._run, self._arguments(work))

    def stop(self, work: Work) -> None:
        self._call("stop", _name(work))

    def ended(self, running: Sequence[Work]) -> list[Work]:
        names, self.nodes = self._call("state")
        return [work for work in running if _name(work) not in names]

    def _call(self, name: str, *arguments: Any) -> Any:
        with _translated():
            return self._caller.call(name, *arguments)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except ClusterRefused as error:
        raise EngineRefused(str(error)) from None
    except ClusterUnavailable as error:
        raise EngineUnavailable(str(error)) from None


def _state() -> tuple[set[str], int]:
    """Return the names of the attempts that run or wait, and the number of live nodes."""
    import ray

    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return {str(name) for name in ray.util.list_named_actors()}, sum(each["Alive"] for each in nodes)


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
