"""The processes of one machine that do batches and steps, and keep sandboxes warm: one for each program of a tenant."""

import contextlib
import hashlib
import json
import logging
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from pydantic import ValidationError

from evolverpc_common.files import remove_tree, replace_file
from evolverpc_common.redaction import Secrets
from gepa_service.jobs.work_order import REPORTS, Begin, Ended, Message, ProgramOrder, Reported, Stop, Warm, failed
from gepa_service.jobs.work_process import RunningWork

MOST_IDLE = 4
"""Processes without a work that are kept because sandboxes wait in them; the one that was used last is kept longest."""

END_S = 60.0
"""Seconds that a process may take to end its sandboxes."""

SHOWN = 4000
"""Bytes of the log of a process that ended by itself that are logged."""

_log = logging.getLogger(__name__)

GIT, LOG = "gitconfig", "host.log"


@dataclass(frozen=True)
class HostKey:
    """What all works of a process share. `given`: a digest of the secrets and networks of their orders."""

    tenant: str
    repo_url: str
    given: bytes

    @classmethod
    def of(cls, tenant: str, repo_url: str, order: ProgramOrder) -> Self:
        """Return that of a work."""
        given = (sorted(order.secrets.items()), order.redacted, order.allow_networks)
        return cls(tenant, repo_url, hashlib.sha256(repr(given).encode()).digest())


class Hosts:
    """The processes that this one has started; they end with it. Used in a `with` block, whose end ends them.

    A process has one repository and one set of secrets: they are its environment and its configuration of git, and what
    kills it affects no other. With other secrets a new one is started, and the one before ends after its works.
    `keep_warm`: whether sandboxes are started for works that may follow.
    """

    def __init__(self, *, keep_warm: bool) -> None:
        self.keep_warm = keep_warm
        self._lock = threading.Lock()
        self._hosts: dict[HostKey, _HostProcess] = {}
        self._ending: set[_HostProcess] = set()
        """Those that get no further works; their folders may still be there."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            hosts, self._hosts = [*self._hosts.values(), *self._ending], {}
        for host in hosts:
            host.hang_up()
        for host in hosts:
            host.wait(END_S)

    @property
    def warm(self) -> int:
        """How many sandboxes wait for a work."""
        return sum(host.warm for host in tuple(self._hosts.values()))

    def begin(
        self,
        key: HostKey,
        order: ProgramOrder,
        environment: Mapping[str, str],
        git: str,
        secrets: Secrets,
        folder: Path,
    ) -> RunningWork:
        """Begin a work in the process that has its key, and return it.

        `environment`: of a new process, whole but for what names its folder, one in `folder`. `git`: the configuration
        of git for the repository, which replaces the one before. `secrets`: are replaced in all that it reports.
        """
        with self._lock:
            self._ending = {each for each in self._ending if not each.is_gone}
            host = self._hosts.pop(key, None)
            if host is None or host.has_ended:
                for other in [
                    other for other in self._hosts if (other.tenant, other.repo_url) == (key.tenant, key.repo_url)
                ]:
                    self._let_go(other)
                host = _HostProcess(self, Path(tempfile.mkdtemp(prefix="host-", dir=folder)), environment, secrets)
            self._hosts[key] = host  # the last one is the one that was used last
            work = host.begin(order, git)
            idle = [each for each, one in self._hosts.items() if not one.works]
            for each in idle[: max(0, len(idle) - MOST_IDLE)]:
                self._let_go(each)
        return work

    def consider(self, host: "_HostProcess") -> None:
        """End a process that has no work and no sandbox, or was let go."""
        with self._lock:
            if host.works:
                return
            for key, known in tuple(self._hosts.items()):
                if known is host:
                    if host.warm:
                        return
                    del self._hosts[key]
            self._ending.add(host)
            host.hang_up()

    def ended(self, host: "_HostProcess") -> "list[_HostedWork]":
        """Begin no further work in a process that has ended; return those that it has not ended."""
        with self._lock:
            self._hosts = {key: one for key, one in self._hosts.items() if one is not host}
            self._ending.add(host)
            host.has_ended = True
            works = list(host.works.values())
            host.works.clear()
            return works

    def _let_go(self, key: HostKey) -> None:
        """Give a process no further works; it ends after those that it has."""
        host = self._hosts.pop(key)
        self._ending.add(host)
        if not host.works:
            host.hang_up()


class _HostProcess:
    """A process of `host_main`, a session of its own, with a folder of its own. `works`: by the names of folders."""

    def __init__(self, hosts: Hosts, folder: Path, environment: Mapping[str, str], secrets: Secrets) -> None:
        self._hosts, self._folder, self._secrets = hosts, folder, secrets
        self.works: dict[str, _HostedWork] = {}
        self.warm = 0
        self.has_ended = False
        self._writing = threading.Lock()
        for name in ("home", "tmp"):
            (folder / name).mkdir(mode=0o700)
        own = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "GIT_CONFIG_GLOBAL": str(folder / GIT)}
        with (folder / LOG).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gepa_service.jobs.host_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**environment, **own},
                cwd=folder,
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None, "pipes"  # noqa: S101
        self._stdin = self._process.stdin
        self._reading = threading.Thread(target=self._read, args=(self._process.stdout,), name=folder.name)
        self._reading.start()

    def begin(self, order: ProgramOrder, git: str) -> "_HostedWork":
        """Begin a work."""
        replace_file(self._folder / GIT, git, mode=0o600)
        work = self.works[order.folder.name] = _HostedWork(self, order.folder.name)
        self.send(Begin(order=order))
        return work

    def send(self, request: Begin | Stop) -> None:
        """Send a request."""
        with self._writing, contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, which its output shows
            self._stdin.write(request.model_dump_json().encode() + b"\n")
            self._stdin.flush()

    def hang_up(self) -> None:
        """Have it stop its works, and end."""
        with self._writing, contextlib.suppress(BrokenPipeError):
            self._stdin.close()

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

    def _read(self, lines: IO[bytes]) -> None:
        try:
            with lines:
                for line in lines:
                    self._take(line)
        finally:
            status = self._process.wait()
            self.hang_up()
            self.warm = 0
            if status:
                text = (self._folder / LOG).read_bytes()[-SHOWN:].decode("utf-8", "replace")
                _log.warning(
                    "a process of batches and steps ended with status %d: %s", status, self._secrets.redact_text(text)
                )
            for work in self._hosts.ended(self):
                work.take(None)
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
            self.warm = report.warm
            self._hosts.consider(self)
        elif (work := self.works.get(report.work)) is not None:
            work.take(report.message)
            if isinstance(report.message, Ended):
                del self.works[report.work]
                work.take(None)
                self._hosts.consider(self)


def _work_of(line: bytes) -> str:
    """Return the work of a report of which no more can be read; "" if that cannot be read either."""
    try:
        return str(json.loads(line)["work"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


class _HostedWork(RunningWork):
    """A work of a process that does others beside it."""

    def __init__(self, host: _HostProcess, name: str) -> None:
        super().__init__()
        self._host, self._name = host, name
        self._over = threading.Event()

    def take(self, message: Message | None) -> None:
        """Hand on a message; None follows the last one."""
        self._messages.put(message)
        if message is None:
            self._over.set()

    def stop(self) -> None:
        """As of `RunningWork`."""
        self._host.send(Stop(work=self._name))

    def end(self, patience_s: float, *, at_once: bool = False) -> None:
        """As of `RunningWork`; by force all works of the process end."""
        if at_once and not self._over.is_set():
            self.stop()
        if not self._over.wait(patience_s):
            self._host.kill()
            self._over.wait()
