"""Start job processes: by forking a zygote that has imported what they need, or each in a new interpreter."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Protocol


class JobProcess(Protocol):
    """A job process, as `subprocess.Popen` is one. Its standard input and output are pipes."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def poll(self) -> int | None:
        """Return a number once it has ended, None before."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send it a signal; nothing happens if it has ended."""
        ...


class JobStarter(Protocol):
    """Starts job processes, from any thread."""

    def start(self, environment: Mapping[str, str], folder: Path, log: IO[bytes]) -> JobProcess:
        """Start one with this environment and nothing else, in this folder and a session of its own.

        What it prints is appended to `log`. Raises `OSError`.
        """
        ...


@contextlib.contextmanager
def open_starter() -> Iterator[JobStarter]:
    """Open a starter for the block: a zygote if the machine has pidfds."""
    if not _has_process_descriptors():
        yield NewInterpreters()
        return
    from gepa_service.jobs.job_zygote import JobZygote

    zygote = JobZygote()
    try:
        yield zygote
    finally:
        zygote.close()


def _has_process_descriptors() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # not Linux, or a kernel without pidfds
        return False
    return True


class NewInterpreters:
    """Starts each process anew, which takes seconds of imports."""

    def start(self, environment: Mapping[str, str], folder: Path, log: IO[bytes]) -> JobProcess:
        """As of `JobStarter`."""
        process: JobProcess = subprocess.Popen(
            [sys.executable, "-P", "-m", "gepa_service.jobs.job_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
        return process
