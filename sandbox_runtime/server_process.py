"""Start a server as a plain process, wait until it is ready, and end it; this isolates nothing."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from sandbox_runtime.api.sandbox import ProcessEndpoint

CLOSE_GRACE_S = 5.0
LOG_TAIL_BYTES = 4096
_PAUSE_S = 0.02


class ServerFailed(Exception):
    """The server ended, or was not ready in time; the message holds the end of its stderr."""


@contextlib.contextmanager
def running_server(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, ready_s: float = 60.0
) -> Iterator[ProcessEndpoint]:
    """Run a server while the block runs. `argv` prints `{"event": "ready", "url", "token"}` as a line on stdout.

    `env` is added to this process's environment; `GEPA_READY_JSON=1` requests the line. A server that gets its token in
    `GEPA_TOKEN` need not print it. At the end of the block it gets SIGTERM, and its whole session SIGKILL after 5 s.

    Raises:
        ServerFailed: it ended before it was ready, or was not ready within `ready_s` seconds.
    """
    environment = {**os.environ, **(env or {}), "GEPA_READY_JSON": "1"}
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as log:  # a full pipe would stop the server
        process = subprocess.Popen(  # noqa: S603  the caller chooses the command; no shell is involved
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=log,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
        try:
            ready = _ready_event(process, printed, log, ready_s)
            url = ready.get("url")
            if not (isinstance(url, str) and url):
                raise ServerFailed(f"{process.args!r} printed a ready line without a url")
            token = ready.get("token") or environment.get("GEPA_TOKEN")
            if not token:
                raise ServerFailed(f"{process.args!r} printed no token, and none was given in GEPA_TOKEN")
            yield ProcessEndpoint(url=url, token=token, pid=process.pid)
        finally:
            _end(process)


def _ready_event(
    process: "subprocess.Popen[bytes]", printed: IO[bytes], log: IO[bytes], ready_s: float
) -> dict[str, Any]:
    deadline = time.monotonic() + ready_s
    while True:
        status = process.poll()
        for line in _content(printed).splitlines():
            if (event := _event(line)) is not None:
                return event
        if status is not None:
            raise ServerFailed(f"{process.args!r} ended with status {status}\n{_tail(log)}")
        if time.monotonic() > deadline:
            late = f"was not ready within {ready_s:g} s: give it longer, or see what it waits for"
            raise ServerFailed(f"{process.args!r} {late}\n{_tail(log)}")
        time.sleep(_PAUSE_S)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None  # a server may print other lines before it is ready
    return event if isinstance(event, dict) and event.get("event") == "ready" else None


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


def _content(file: IO[bytes]) -> bytes:
    """Return all of it, without a change of the position at which the server writes."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _tail(log: IO[bytes]) -> str:
    return _content(log)[-LOG_TAIL_BYTES:].decode("utf-8", "replace")
