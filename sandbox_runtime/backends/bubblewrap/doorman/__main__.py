"""`python -I -m sandbox_runtime.backends.bubblewrap.doorman WIRE RUNTIME_PID [MODULE]`, started by `Door`."""

import gc
import importlib
import os
import resource
import socket
import sys

from sandbox_runtime.backends.bubblewrap.doorman import forked, kernel
from sandbox_runtime.backends.bubblewrap.doorman.serving import Doorman, Forked


def main(arguments: list[str]) -> None:
    """Serve on the socket `WIRE`; `MODULE` is imported first, for servers that are forked from here."""
    wire, runtime, *modules = arguments
    for module in modules:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not survive a fork"  # noqa: S101, PTH208
    kernel.adopt_orphans()
    kernel.leave_keyring()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # it holds some for each sandbox
    gc.collect()
    gc.freeze()  # so that its forks share these objects' memory
    work: forked.Child | None = None
    try:
        Doorman(socket.socket(fileno=int(wire)), int(runtime)).serve()
    except Forked as unwound:
        work = unwound.work
    if work is not None:
        work()


main(sys.argv[1:])
