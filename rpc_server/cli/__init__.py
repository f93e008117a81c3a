"""The command `evolverpc serve`: isolate first, import the rest after.

Isolated, it finds no other packages of our names, and its environment does not show the token.
"""

import gc
import os
import sys
from pathlib import Path

from evolverpc_common.installation import find_collision, missing_packages

TOKEN_VARIABLE = "GEPA_TOKEN"  # noqa: S105  # the name of a variable, not a token
_TOKEN_PIPE = "GEPA_TOKEN_PIPE"  # noqa: S105  # as above
_PIPE_BYTES = 4096
"""Bytes that every pipe accepts without a reader."""

_HOME = Path(__file__).resolve().parents[2]
# The folder is named because `-I` would not look into a checkout that was never installed.
_START = "import sys; {home!r} in sys.path or sys.path.insert(0, {home!r}); from rpc_server.cli import main; main()"


def isolate() -> None:
    """Execute `python -I` with the same arguments, unless this process is isolated and shows no token.

    Then no variable, user folder or working directory can replace our packages. The token is passed through a pipe, as
    other processes of this user can read the initial environment while the process runs.
    """
    if not sys.flags.isolated or _shows_token():
        sys.stdout.flush()
        environment = dict(os.environ)
        if TOKEN_VARIABLE in environment:
            environment[_TOKEN_PIPE] = str(_pipe_with(environment.pop(TOKEN_VARIABLE)))
        start = _START.format(home=str(_HOME))
        command = [sys.executable, "-I", "-c", start, *sys.argv[1:]]
        os.execve(sys.executable, command, environment)  # noqa: S606  # ourselves
    if (pipe := os.environ.pop(_TOKEN_PIPE, None)) is not None:
        with open(int(pipe), encoding="utf-8", errors="surrogateescape") as reading:  # noqa: PTH123  # a descriptor
            os.environ[TOKEN_VARIABLE] = reading.read()


def _shows_token() -> bool:
    """Report whether others can read the token in the initial environment; a fork may have got it later."""
    if TOKEN_VARIABLE not in os.environ:
        return False
    try:
        return f"\0{TOKEN_VARIABLE}=".encode() in b"\0" + Path("/proc/self/environ").read_bytes()
    except OSError:
        return True


def _pipe_with(text: str) -> int:
    """Return the read end of a pipe that holds this text, which an executed program inherits."""
    content = os.fsencode(text)
    if len(content) > _PIPE_BYTES:
        sys.exit(f"evolverpc serve: {TOKEN_VARIABLE} has {len(content)} bytes; give a token of at most {_PIPE_BYTES}")
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    os.set_inheritable(reading, True)
    return reading


def main() -> None:
    """Run the command and exit with its status."""
    isolate()
    trouble = find_collision() or missing_packages("server")
    if trouble is not None:
        sys.stderr.write(f"evolverpc serve: {trouble}\n")
        sys.exit(2)
    gc.disable()  # garbage collection takes a fifth of the imports' time; the server enables it
    from rpc_server.cli.flags import run

    run(sys.argv[1:])
