"""The processes of one machine that do work: one for each optimization, and one for each program of a tenant.

The latter does batches and steps, and keeps sandboxes warm.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

from pydantic import ValidationError

from evolverpc_common.files import lock_if_free, remove_tree, replace_file
from evolverpc_common.redaction import Secrets
from gepa_service.jobs.messages import (
    REPORTS,
    Begin,
    Ended,
    EndWarm,
    Message,
    OptimizeOrder,
    ProgramOrder,
    Reported,
    Stop,
    Warm,
    failed,
)

MOST_IDLE = 4
"""Processes without a work that are kept because sandboxes wait in them; the one that was used last is kept longest."""

MOST_WARM_MB = 8192
"""Memory that the sandboxes of all processes that wait for a work may use together, in MiB."""

END_S = 60.0
"""Seconds that a process may take to end its sandboxes."""

READ_S = 30.0
"""Seconds after which a process that reads nothing of what it is sent is ended; its works are placed again."""

TICK_S = 0.1
SHOWN = 4000
"""Bytes of the log of a process that ended by itself that are logged."""

_log = logging.getLogger(__name__)

PREFIX = "shared-process-"
GIT, LOG = "gitconfig", "process.log"


class SharedProcesses:
    """The processes that this one has started; they end with it. Used in a `with` block, whose end ends them.

    A process has one repository and one set of secrets: they are its environment and its configuration of git, and what
    kills it affects no other. With other secrets a new one is started, and the one before ends after its works.
    `folder`: for the folders of processes. `keep_warm`: whether sandboxes are started for works that may follow.
    `warm_mb`: the memory that these may use together.
    """

    def __init__(self, folder: Path, *, keep_warm: bool) -> None:
        self.warm_mb = MOST_WARM_MB if keep_warm else 0
        self._folder = folder
        self._lock = threading.Lock()
        self._processes: list[_SharedProcess] = []
        """The one that was used last is the last; those that have ended too, until another one is used."""

    def __enter__(self) -> Self:
        """Remove the folders of processes that ended with their machine: they may hold a token of git."""
        for folder in self._folder.glob(f"{PREFIX}*"):
            with lock_if_free(folder / LOG) as is_left:
                if is_left:
                    remove_tree(folder)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            processes, self._processes = self._processes, []
        for process in processes:
            process.hang_up()
        for process in processes:
            process.wait(END_S)

    @property
    def warm(self) -> int:
        """How many sandboxes wait for a work."""
        return sum(process.warm.warm for process in tuple(self._processes) if not process.is_let_go)

    def begin(
        self,
        program: tuple[str, str],
        order: OptimizeOrder | ProgramOrder,
        environment: Mapping[str, str],
        git: str,
        secrets: Secrets,
    ) -> "RunningWork":
        """Begin a work, a batch or step in the process that has its program, secrets and networks; return the work.

        `program`: the tenant and the repository. `environment`: of a new process, whole but for what names its folder.
        `git`: the configuration of git for the repository, which replaces the one before. `secrets`: are replaced in
        all that it reports.
        """
        listed = (sorted(order.secrets.items()), order.redacted, order.allow_networks)
        given, is_alone = hashlib.sha256(repr(listed).encode()).digest(), isinstance(order, OptimizeOrder)
        with self._lock:
            self._processes = [each for each in self._processes if not each.is_gone]
            kept = [each for each in self._processes if each.program == program and not each.is_let_go and not is_alone]
            process = next((each for each in kept if each.given == given), None)
            if process is None:
                for other in kept:
                    other.let_go()
                folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._folder))
                process = _SharedProcess(self, program, given, folder, environment, secrets)
                process.is_let_go = is_alone
            else:
                self._processes.remove(process)
            self._processes.append(process)
            work = process.begin(order, git)
            self._trim()
        return work

    def consider(self, process: "_SharedProcess") -> None:
        """End a process that has no work and no sandbox, or was let go; and what is more than may wait."""
        with self._lock:
            if not process.works and (process.is_let_go or not process.warm.warm):
                process.let_go()
            self._trim()

    def ended(self, process: "_SharedProcess") -> "list[RunningWork]":
        """Begin no further work in a process that has ended; return those that it has not ended."""
        with self._lock:
            process.is_let_go = True
            works = list(process.works.values())
            process.works.clear()
            return works

    def _trim(self) -> None:
        """End what is more than may wait, in those processes first that were used longest ago."""
        kept = [each for each in self._processes if not each.is_let_go]
        idle = [each for each in kept if not each.works]
        for process in idle[: max(0, len(idle) - MOST_IDLE)]:
            process.let_go()
        for process in kept:
            if sum(each.warm.memory_mb for each in kept if not each.is_let_go) <= MOST_WARM_MB:
                return
            if process.works:
                process.end_warm()
            else:
                process.let_go()


NONE_WARM = Warm(warm=0, memory_mb=0)


class _SharedProcess:
    """A process of `process_main`, a session of its own, with a folder of its own.

    `works`: by the names of folders. `warm`: what it has reported last. `is_let_go`: it gets no further works, and ends
    after those that it has, as that of an optimization does. Nothing here waits for the process.
    """

    def __init__(
        self,
        processes: SharedProcesses,
        program: tuple[str, str],
        given: bytes,
        folder: Path,
        environment: Mapping[str, str],
        secrets: Secrets,
    ) -> None:
        self._processes, self._folder, self._secrets = processes, folder, secrets
        self.program, self.given, self.is_let_go = program, given, False
        self.works: dict[str, RunningWork] = {}
        self.warm = NONE_WARM
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        """None ends the process."""
        for name in ("home", "tmp"):
            (folder / name).mkdir(mode=0o700)
        own = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "GIT_CONFIG_GLOBAL": str(folder / GIT)}
        with (folder / LOG).open("ab") as log:
            fcntl.flock(log, fcntl.LOCK_EX)  # until the process ends, which has the same open file
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gepa_service.jobs.process_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**environment, **own},
                cwd=folder,
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None, "pipes"  # noqa: S101
        self._reading = threading.Thread(target=self._read, args=(self._process.stdout,), name=folder.name)
        self._reading.start()
        writing = (self._process.stdin,)
        threading.Thread(target=self._write, args=writing, name=f"requests of {folder.name}").start()

    def begin(self, order: OptimizeOrder | ProgramOrder, git: str) -> "RunningWork":
        """Begin a work."""
        replace_file(self._folder / GIT, git, mode=0o600)
        work = self.works[order.folder.name] = RunningWork(self, order.folder.name)
        self.send(Begin(order=order))
        return work

    def let_go(self) -> None:
        """Give it no further works; it ends after those that it has."""
        self.is_let_go = True
        if self.works:
            self.end_warm()
        else:
            self.hang_up()

    def end_warm(self) -> None:
        """Have it end the sandboxes that wait."""
        self.warm = NONE_WARM
        self.send(EndWarm())

    def send(self, request: Begin | Stop | EndWarm) -> None:
        """Send a request."""
        self._requests.put(request.model_dump_json().encode() + b"\n")

    def hang_up(self) -> None:
        """Have it stop its works, and end."""
        self._requests.put(None)

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, and its folder is removed."""
        return not self._reading.is_alive()

    def kill(self) -> None:
        """End it at once: it does not react."""
        self._process.kill()

    def wait(self, patience_s: float) -> None:
        """Wait until it has ended, and end it by force after `patience_s`."""
        self._reading.join(patience_s)
        if self._reading.is_alive():
            self.kill()
            self._reading.join()

    def _write(self, pipe: IO[bytes]) -> None:
        """Write what is sent, until it hangs up or the process ends."""
        os.set_blocking(pipe.fileno(), False)
        writable = select.poll()
        writable.register(pipe, select.POLLOUT)
        with contextlib.suppress(BrokenPipeError), pipe:  # it has ended, which its output shows
            while (request := self._requests.get()) is not None:
                left = memoryview(request)
                while left:
                    if not writable.poll(READ_S * 1000):
                        _log.warning("a process of work has read nothing for %g s and is ended", READ_S)
                        self.kill()
                        return
                    left = left[os.write(pipe.fileno(), left) :]

    def _read(self, lines: IO[bytes]) -> None:
        try:
            with lines:
                for line in lines:
                    self._take(line)
        finally:
            status = self._process.wait()
            self.hang_up()
            self.warm = NONE_WARM
            for work in self._processes.ended(self):
                work.take(None)
            if status:
                with (self._folder / LOG).open("rb") as log:
                    log.seek(-min(SHOWN, os.fstat(log.fileno()).st_size), os.SEEK_END)
                    text = log.read(SHOWN).decode("utf-8", "replace")
                _log.warning("a process of work ended with status %d: %s", status, self._secrets.redact_text(text))
            remove_tree(self._folder)

    def _take(self, line: bytes) -> None:
        try:
            report = REPORTS.validate_json(self._secrets.redact_json(line))
        except ValidationError as error:
            name = _work_of(line)
            if name not in self.works:
                self.kill()  # its works are placed again
                return
            why = f"its process reported what cannot be read: {error.errors()[0]['msg']}"
            report = Reported(work=name, message=failed("run", why))
        if isinstance(report, Warm):
            self.warm = report
            self._processes.consider(self)
        elif (work := self.works.get(report.work)) is not None:
            work.take(report.message)
            if isinstance(report.message, Ended):
                del self.works[report.work]
                work.take(None)
                self._processes.consider(self)


def _work_of(line: bytes) -> str:
    """Return the work of a report of which no more can be read; "" if that cannot be read either."""
    try:
        return str(json.loads(line)["work"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


class RunningWork:
    """A work that a process does, as its attempt sees it."""

    def __init__(self, process: _SharedProcess, name: str) -> None:
        self._process, self._name = process, name
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self.is_silent = False
        """Whether its last message was read: it has ended."""

    def next(self) -> Message | None:
        """Return the next message, or None if there is none within a tick."""
        with contextlib.suppress(queue.Empty):
            message = self._messages.get(timeout=TICK_S)
            self.is_silent = message is None
            return message
        return None

    def take(self, message: Message | None) -> None:
        """Hand on a message; None follows the last one."""
        self._messages.put(message)
        if message is None:
            self._over.set()

    def stop(self) -> None:
        """Ask it to stop."""
        self._process.send(Stop(work=self._name))

    def end(self, patience_s: float, *, at_once: bool = False) -> None:
        """End it, by force after `patience_s`, with all works of its process.

        `at_once`: calls in flight are given up; sandboxes are ended in time.
        """
        if at_once and not self._over.is_set():
            self.stop()
            self.stop()
        if not self._over.wait(patience_s):
            self._process.kill()
            self._over.wait()
