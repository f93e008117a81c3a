"""The entry point of the zygote: it has imported what job processes need, and becomes one for each request by a fork.

Started as `python -P -s -m gepa_service.jobs.zygote_main FD MODULE...`. The socket FD gets a line of JSON for
each process, with the descriptors of its standard streams: its folder and its environment. It never gets an order: a
process reads that itself, so that a fork holds nothing of another job. The end of the socket ends the zygote.
"""

import gc
import importlib
import json
import locale
import os
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gepa_service.jobs.zygote_messages import FORKED, MESSAGE_BYTES, STREAMS

Work = Callable[[], None]
"""What a forked process does, as the last thing of its main program."""


def main(arguments: list[str]) -> None:
    """Serve until the socket is closed; in forked processes, do their work."""
    control, *modules = arguments
    gc.disable()  # garbage collection takes a fifth of the imports' time
    for module in modules:
        importlib.import_module(module)
    gc.enable()
    gc.collect()
    gc.freeze()  # collections in a fork would copy the pages that it shares with this process
    work = _serve(socket.socket(fileno=int(control)))
    if work is not None:
        work()


def _serve(control: socket.socket) -> Work | None:
    """Return None when the worker is gone, and in each forked process its work."""
    ready = selectors.DefaultSelector()
    ready.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is not control:
                os.waitpid(key.data, 0)
                ready.unregister(key.fileobj)
                os.close(key.fd)
                continue
            text, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, STREAMS, socket.MSG_CMSG_CLOEXEC)
            if not text:
                return None
            child = _fork(control)
            if child == 0:
                ready.close()
                os.close(control.detach())
                return _begun(json.loads(text), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            if child is not None:
                ended = os.pidfd_open(child)
                ready.register(ended, selectors.EVENT_READ, child)
                with suppress(OSError):  # the worker is gone, which the next message shows
                    socket.send_fds(control, [FORKED], [ended])


def _fork(control: socket.socket) -> int | None:
    """Return 0 in the child; None, after the reason was sent, if there is no process to be had."""
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not survive a fork"  # noqa: S101, PTH208
    try:
        return os.fork()
    except OSError as error:
        control.sendall(f"cannot fork: {error.strerror}".encode())
        return None


def _begun(request: dict[str, Any], descriptors: list[int]) -> Work:
    """Make the fork what a process is that was started anew in its folder; return its work."""
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # of this environment, not of the zygote's
    time.tzset()
    with suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "")

    from gepa_service.jobs import job_main

    return job_main.run


if __name__ == "__main__":
    main(sys.argv[1:])
