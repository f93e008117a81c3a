"""The command `evolverpc serve`: isolate first, import the rest after.

Isolated, it finds no other packages of our names, and its environment does not show the token.
"""

import ctypes
import gc
import os
import sys
from pathlib import Path

from evolverpc_common.installation import find_collision, missing_packages

TOKEN_VARIABLE = "GEPA_TOKEN"  # noqa: S105  # the name of a variable, not a token

_HOME = Path(__file__).resolve().parents[2]
# The folder is named because `-I` would not look into a checkout that was never installed.
_START = "import sys; {home!r} in sys.path or sys.path.insert(0, {home!r}); from rpc_server.cli import main; main()"


def isolate() -> None:
    """Execute `python -I` with the same arguments, unless this process is isolated, and hide the token.

    Isolated, no variable, user folder or working directory can replace our packages. Other processes of this user can
    read the environment that a process was started with, while it runs: the token is overwritten there.
    """
    if not sys.flags.isolated:
        sys.stdout.flush()
        command = [sys.executable, "-I", "-c", _START.format(home=str(_HOME)), *sys.argv[1:]]
        os.execv(sys.executable, command)  # noqa: S606  # ourselves
    name = os.fsencode(TOKEN_VARIABLE)
    find = ctypes.CDLL(None).getenv
    find.restype = ctypes.c_void_p
    if (place := find(name)) is not None:
        ctypes.memset(place, 0, len(ctypes.string_at(place)))


def main() -> None:
    """Run the command and exit with its status."""
    isolate()
    trouble = find_collision() or missing_packages("server")
    if trouble is not None:
        sys.stderr.write(f"evolverpc serve: {trouble}\n")
        sys.exit(2)
    gc.disable()  # garbage collection takes a fifth of the imports' time; the server enables it
    from rpc_server.cli.serve_command import run

    run(sys.argv[1:])
