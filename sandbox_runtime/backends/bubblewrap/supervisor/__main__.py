"""Start the daemon: `python -I -m sandbox_runtime.backends.bubblewrap.supervisor SOCKET RUNTIME_PID [MODULE]`."""

import gc
import importlib
import os
import resource
import socket
import sys

from sandbox_runtime.backends.bubblewrap.supervisor import forked_process
from sandbox_runtime.backends.bubblewrap.supervisor.daemon import InForkedChild, SupervisorDaemon


def main(arguments: list[str]) -> None:
    """Serve on the socket; `MODULE` is imported first, for servers that are forked from here."""
    wire, runtime, *modules = arguments
    for module in modules:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not survive a fork"  # noqa: S101, PTH208
    forked_process.adopt_orphans()
    forked_process.leave_keyring()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # it holds some for each sandbox
    gc.collect()
    gc.freeze()  # so that its forks share these objects' memory
    work: forked_process.Child | None = None
    try:
        SupervisorDaemon(socket.socket(fileno=int(wire)), int(runtime)).serve()
    except InForkedChild as unwound:
        work = unwound.work
    if work is not None:
        work()


main(sys.argv[1:])
