"""Where `gepa-server` is, so that a sandbox can start it: our interpreter, what it installed, and our own packages."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from sandbox_runtime.api.sandbox import Unavailable

SERVER = (sys.executable, "-I", "-m", "rpc_server")
"""The command that starts it in our own environment, before its flags."""

PRELOAD = "rpc_server.cli.preload"
"""What a process that forks servers imports first."""

MAIN = ("rpc_server.cli", "main")
"""What such a fork calls."""

_PACKAGES = ("protocol", "rpc_server", "sandbox_runtime", "evolverpc_common")


def server_mounts() -> tuple[str, ...]:
    """The folders that it needs. Our packages are mounted one by one, as beside them a checkout has much else.

    Raises:
        Unavailable: `rpc_server` is not installed, or a module that it needs is not.
    """
    return tuple(dict.fromkeys(str(path) for path in _needed()))


def _needed() -> Iterator[Path]:
    yield from (Path(sys.prefix), Path(sys.base_prefix))
    yield from _passed_through(Path(sys.executable))
    for name in _PACKAGES:
        found = importlib.util.find_spec(name)
        if found is None or not found.submodule_search_locations:
            raise Unavailable(
                f"the package `{name}` is not installed: run pip install '.[server,sandbox]' in the folder of evolverpc"
            )
        yield from (Path(folder) for folder in found.submodule_search_locations)


def _passed_through(executable: Path) -> Iterator[Path]:
    """The installations that an interpreter's links lead through: those of uv have two names."""
    while executable.is_symlink():
        executable = Path(os.path.normpath(executable.parent / executable.readlink()))
        prefix = executable.parents[1]
        if any(prefix.glob("lib/python3*")):
            yield prefix
