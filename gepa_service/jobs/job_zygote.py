"""The zygote of job processes, as its worker uses it: a warm process that is forked for each job."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from gepa_service.jobs.job_environment import PASSED_ON
from gepa_service.jobs.zygote_messages import MESSAGE_BYTES, MODULES

ANSWER_S = 60.0
"""Seconds that a fork may take; the first one waits for the zygote's imports."""


class JobZygote:
    """Implements `JobStarter`. The zygote is started now, and again after it has ended.

    It knows no job and no secret.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._begin()

    def start(self, environment: Mapping[str, str], folder: Path, log: IO[bytes]) -> "ForkedProcess":
        """As of `JobStarter`. It tries once more, with a new zygote, if this one does not answer."""
        request = json.dumps({"folder": str(folder), "environment": dict(environment)}).encode()
        with self._turn:
            try:
                return self._forked(request, log)
            except (TimeoutError, ConnectionError):
                self._end()
                self._begin()
                return self._forked(request, log)

    def close(self) -> None:
        """End the zygote; what it forked continues."""
        with self._turn:
            self._end()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        known = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        command = [sys.executable, "-P", "-s", "-m", "gepa_service.jobs.zygote_main", str(theirs.fileno())]
        with contextlib.ExitStack() as failed, theirs:
            failed.enter_context(ours)
            self._process = subprocess.Popen(  # noqa: S603  this interpreter, no shell
                [*command, *MODULES],
                stdin=subprocess.DEVNULL,
                env=known,
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            failed.pop_all()
        ours.settimeout(ANSWER_S)
        self._control = ours

    def _end(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _forked(self, request: bytes, log: IO[bytes]) -> "ForkedProcess":
        """Fork a process with pipes of its own: a late fork of a zygote that did not answer reads no order."""
        (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
        try:
            process = self._asked(request, [read_in, write_out, log.fileno()])
        except BaseException:
            os.close(write_in)
            os.close(read_out)
            raise
        finally:
            os.close(read_in)
            os.close(write_out)
        return ForkedProcess(process, os.fdopen(write_in, "wb"), os.fdopen(read_out, "rb"))

    def _asked(self, request: bytes, streams: list[int]) -> int:
        """Return the descriptor of a new process with these standard streams."""
        socket.send_fds(self._control, [request], streams)
        text, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if descriptors:
            return descriptors[0]
        if not text:
            raise ConnectionResetError("the zygote of job processes has ended")
        raise OSError(f"no job process: {text.decode()}")


class ForkedProcess:
    """Implements `JobProcess`, for one thread, by its descriptor: the process is the zygote's child.

    Its exit status is not known here: `poll` and `wait` return 0 for a process that has ended.
    """

    def __init__(self, process: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout
        self._process: int | None = process

    def poll(self) -> int | None:
        """As of `JobProcess`."""
        return 0 if self._has_ended(0.0) else None

    def wait(self, timeout: float | None = None) -> int:
        """As of `JobProcess`."""
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("job process", timeout or 0.0)
        return 0

    def send_signal(self, sig: int) -> None:
        """As of `JobProcess`."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, sig)

    def _has_ended(self, within_s: float | None) -> bool:
        if self._process is not None:
            ending = select.poll()
            ending.register(self._process, select.POLLIN)
            if not ending.poll(None if within_s is None else 1000 * within_s):
                return False
            os.close(self._process)
            self._process = None
        return True
