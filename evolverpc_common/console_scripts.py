"""Entry points of the console scripts, outside of the packages that a user's module may hide.

The command is `evolverpc`; `gepa-client` is the same command, and `gepa-server` is `evolverpc serve`. What runs a
command is imported by name once it is certain that Python finds it: this package imports none above it.
"""

import os
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from evolverpc_common.installation import find_collision

SERVE = "serve"
_PARTS = {SERVE: "rpc_server.cli", "service": "gepa_service.cli"}
"""The packages behind the first word of a command; `gepa_client.cli` has all others."""

_OF_NODE = (".ts", ".mts", ".cts", ".js", ".mjs", ".cjs")
_NODE_COMMAND = Path("node_modules", "evolverpc", "dist", "bin", "evolverpc.js")


def evolverpc() -> None:
    """Run the command `evolverpc`."""
    _exit_on_collision()
    part = _PARTS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if part is None:
        import_module("gepa_client.cli").main()
    elif sys.argv.pop(1) == SERVE:
        _serve()
    else:
        import_module(part).main()


def gepa_client() -> None:
    """Run the command `evolverpc` by its other name."""
    evolverpc()


def gepa_server() -> None:
    """Run the command `evolverpc serve`."""
    _exit_on_collision()
    _serve()


def _serve() -> None:
    program = sys.argv[1] if len(sys.argv) > 1 else ""
    if program.endswith(_OF_NODE):
        _serve_by_node(Path(program))
    import_module(_PARTS[SERVE]).main()


def _serve_by_node(program: Path) -> None:
    """Replace this process by the npm package's `evolverpc serve`, which serves programs of Node."""
    if not program.is_file():
        _refuse(f"there is no file {program.absolute()}")
    folders = program.absolute().parents
    command = next((found for folder in folders if (found := folder / _NODE_COMMAND).is_file()), None)
    node = shutil.which("node")
    if command is None or node is None:
        absent = "node is not on PATH" if node is None else "no folder around it has node_modules/evolverpc"
        packages = f"npm install PATH_TO_CLONE/clients/typescript{' tsx' if program.suffix.endswith('ts') else ''}"
        remedy = "install Node 20" if node is None else f"run `{packages}` in {folders[0]}"
        _refuse(f"{program} is a program for Node, but {absent}: {remedy}")
    sys.stdout.flush()
    os.execv(node, [node, str(command), SERVE, *sys.argv[1:]])  # noqa: S606  # the program that the user named


def _exit_on_collision() -> None:
    collision = find_collision()
    if collision is not None:
        _refuse(collision)


def _refuse(reason: str) -> NoReturn:
    sys.stderr.write(f"evolverpc: {reason}\n")
    sys.exit(2)
