"""Start the supervisor daemon in a new interpreter."""

import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO

_MODULE = "sandbox_runtime.backends.bubblewrap.supervisor.daemon"


@dataclass(frozen=True)
class Daemon:
    """A daemon that runs. `wire`: the socket by which it gets its orders. `log`: a file with what it printed."""

    process: "subprocess.Popen[bytes]"
    wire: socket.socket
    log: IO[bytes]


def execute_daemon(preload: str | None) -> Daemon:
    """Start it in a new interpreter. `preload`: a module that it imports before it forks. Raises `OSError`."""
    wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log = tempfile.TemporaryFile()  # noqa: SIM115  closed by its client
    with theirs:
        arguments = [str(theirs.fileno()), str(os.getpid()), *([preload] if preload else [])]
        process = subprocess.Popen(  # noqa: S603  this interpreter, no shell
            [sys.executable, "-I", "-m", _MODULE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={"LANG": "C.UTF-8", "PATH": os.defpath},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return Daemon(process, wire, log)
