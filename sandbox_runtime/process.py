"""Start a server as a plain process, wait until it is ready, and end it; this isolates nothing."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

CLOSE_GRACE_S = 5.0
LOG_TAIL_BYTES = 4096


class ServerFailed(Exception):
    """The server ended, or was not ready in time; the message holds the end of what it wrote to stderr."""


@dataclass(frozen=True)
class Endpoint:
    """Where a running server answers. `pid` is the process that was started, which leads a session of its own."""

    url: str
    token: str
    pid: int


@contextlib.contextmanager
def running_server(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, ready_s: float = 60.0
) -> Iterator[Endpoint]:
    """Run `argv`, a server that prints `{"event": "ready", "url", "token"}` as a line on stdout, while the block runs.

    `env` is added to this process's environment; `GEPA_READY_JSON=1` asks for the line. Leaving the block sends
    SIGTERM, and SIGKILL to the whole session after 5 s.

    Raises:
        ServerFailed: it ended before it was ready, or was not ready within `ready_s` seconds.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603  the caller chooses the command; no shell is involved
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=cwd,
            env={**os.environ, **(env or {}), "GEPA_READY_JSON": "1"},
            start_new_session=True,
        )
        try:
            yield _ready(process, log, time.monotonic() + ready_s)
        finally:
            _end(process)


def _ready(process: "subprocess.Popen[bytes]", log: IO[bytes], deadline: float) -> Endpoint:
    assert process.stdout is not None  # noqa: S101  a pipe was asked for
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise ServerFailed(f"{process.args!r} was not ready in time\n{_tail(log)}")
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                raise ServerFailed(f"{process.args!r} ended with status {process.wait()}\n{_tail(log)}")
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                endpoint = _endpoint(line, process.pid)
                if endpoint is not None:
                    return endpoint


def _endpoint(line: bytes, pid: int) -> Endpoint | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None  # a server may say other things before it is ready
    if not isinstance(event, dict) or event.get("event") != "ready":
        return None
    return Endpoint(url=event["url"], token=event.get("token") or os.environ.get("GEPA_TOKEN", ""), pid=pid)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(CLOSE_GRACE_S)
    except subprocess.TimeoutExpired:
        pass  # killed below, with everything else of its session
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _tail(log: IO[bytes]) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - LOG_TAIL_BYTES))
    return log.read().decode("utf-8", "replace")
