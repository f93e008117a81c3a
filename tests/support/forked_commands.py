"""Write `evolverpc` and `evolverpc serve` as programs that are forks, for programs of tests that start them by a path.

`python -m tests.support.forked_commands FOLDER` starts the process that is forked and writes both into FOLDER, for the
tests in TypeScript. They work until the process that ran this ends. A fork gets the descriptors 0 to 3, SIGINT and
SIGTERM; after `kill -9` of such a program its fork runs on.
"""

import os
import sys
from pathlib import Path

from tests.support.forked_client import COMMAND, SERVER, ForkServer

PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys

FORWARDED = (signal.SIGINT, signal.SIGTERM)
signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
streams = [0, 1, 2]
if os.path.exists("/proc/self/fd/3"):
    streams.append(3)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect("\\0{address}")
request = ["{module}", sys.argv[1:], os.getcwd(), dict(os.environ), True]
socket.send_fds(connection, [json.dumps(request).encode()], streams)
fork = int(connection.recv(64))
for number in FORWARDED:
    signal.signal(number, lambda number, _: os.kill(fork, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
status = os.waitstatus_to_exitcode(int(connection.recv(64).split()[0]))
sys.exit(status if status >= 0 else 128 - status)  # as a shell does
"""


def write_commands(server: ForkServer, folder: Path) -> Path:
    """Write both programs into the folder; return the path of `evolverpc`."""
    for name, module in (("evolverpc", COMMAND), ("gepa-server", SERVER)):
        program = folder / name
        program.write_text(PROGRAM.format(python=sys.executable, address=server.address, module=module))
        program.chmod(0o755)
    return folder / "evolverpc"


if __name__ == "__main__":
    write_commands(ForkServer.started(os.getppid()), Path(sys.argv[1]))
