"""Serve an application by uvicorn, in a thread, on a free port."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

WAIT_S = 20.0


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Yield the URL; the server ends with the block, with its open streams."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until = time.monotonic() + WAIT_S
        while not server.started:
            assert thread.is_alive() and time.monotonic() < until, "the server did not start"
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(WAIT_S)
            assert not thread.is_alive(), "the server did not end"
