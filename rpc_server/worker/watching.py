"""Watch the clients that a program imports, as soon as they are imported; nothing is imported for it."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any, Callable

from . import watched_clients

_WATCHERS: dict[str, Callable[[Any], None]] = {
    "httpx": watched_clients.watch_httpx,
    "httpx2": watched_clients.watch_httpx,
    "lm15.transports": watched_clients.watch_lm15,
    "dspy._vendor.lm15.transports": watched_clients.watch_lm15,
    "aiohttp": watched_clients.watch_aiohttp,
    "urllib3.connectionpool": watched_clients.watch_urllib3_pool,
    "urllib3.response": watched_clients.watch_urllib3_response,
    "http.client": watched_clients.watch_http_client,
    "socket": watched_clients.watch_sockets,
    "threading": watched_clients.watch_threads,
    "asyncio.base_events": watched_clients.watch_loops,
    "uvloop": watched_clients.watch_uvloop,
    "concurrent.futures._base": watched_clients.watch_futures,
    "concurrent.futures.thread": watched_clients.watch_pools,
    "multiprocessing.pool": watched_clients.watch_thread_pools,
}


def watch() -> None:
    """Watch what is imported, and what will be."""
    for name in _WATCHERS:
        if name in sys.modules:
            _watch(name, sys.modules[name])
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _watch(name: str, module: ModuleType) -> None:
    """Watch one module; one that is not as expected, such as a double of a test, is left as it is."""
    if "_evolverpc_watched" in vars(module):
        return
    vars(module)["_evolverpc_watched"] = True
    try:
        _WATCHERS[name](module)
    except AttributeError:
        return


class _Finder:
    """Finds the modules to watch as they would be found without it, and watches them once they have run."""

    def __init__(self) -> None:
        self._finding: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002  # as every finder
        """Return the spec of a module to watch; None of others."""
        if name not in _WATCHERS or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding.discard(name)
        loader: Any = None if spec is None else spec.loader
        if hasattr(loader, "__dict__") and hasattr(loader, "exec_module") and not isinstance(loader, type):
            loader.exec_module = _watching(loader.exec_module, name)
        return spec


def _watching(run: Callable[[ModuleType], None], name: str) -> Callable[[ModuleType], None]:
    def exec_module(module: ModuleType) -> None:
        run(module)
        if module.__name__ == name:
            _watch(name, module)

    return exec_module
