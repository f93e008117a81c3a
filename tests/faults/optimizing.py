"""Drives one run by the command line as a user would: starts it, kills it, resumes it until it has ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gepa_client.certificate.certificate import mismatches
from gepa_client.journal.entries import SEARCH
from gepa_client.journal.store import open_store
from tests.faults import execution_log
from tests.faults.outcome import Executions, Outcome, executions_of, outcome_of
from tests.faults.runs import Setup
from tests.faults.serving import TOKEN
from tests.support.forked_client import COMMAND, ForkedProcess, ForkServer
from tests.support.processes import is_running

LEASE_S = 1.0
LONG_LEASE_S = 10.0
"""For runs that are not taken over: on a busy machine a driver may miss its heartbeat for a second."""

COMPLETED, PAUSED = 0, 3
RESUMES = 6
Victim = Literal["both", "parent", "child"]


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """The reason in the last event of the run; empty if it has none."""
        for line in reversed(self.stdout.splitlines()):
            event = json.loads(line)
            if event["event"] == "finished":
                return str(event["reason"])
        return ""

    def __str__(self) -> str:
        return f"status {self.status}\n{self.stdout[-3000:]}\n{self.stderr[-3000:]}"


class Driver:
    """One process of `evolverpc` that drives, or tries to drive, a run.

    `fork_server`: makes it a fork, of which `child` is not known.
    """

    def __init__(
        self, arguments: Sequence[object], folder: Path, environment: Mapping[str, str], fork_server: ForkServer | None
    ) -> None:
        words = [*map(str, arguments), "--json"]
        self._out = (folder / f"stdout-{time.monotonic_ns()}").open("w+b")
        self._err = (folder / f"stderr-{time.monotonic_ns()}").open("w+b")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GEPA_")}
        env = {**kept, "GEPA_TOKEN": TOKEN, **environment}
        self.process: subprocess.Popen[bytes] | ForkedProcess
        if fork_server is None:
            command = [sys.executable, "-m", "gepa_client", *words]
            null = subprocess.DEVNULL
            self.process = subprocess.Popen(
                command, cwd=folder, env=env, stdin=null, stdout=self._out, stderr=self._err
            )
        else:
            with open(os.devnull) as stdin:  # noqa: PTH123  a descriptor is needed
                streams = (stdin.fileno(), self._out.fileno(), self._err.fileno())
                address = fork_server.address
                self.process = ForkedProcess(
                    address, COMMAND, words, folder=str(folder), environment=env, streams=streams
                )
        self._family: dict[int, str | None] = {}

    @property
    def child(self) -> int | None:
        """The optimizer's own process, if it has been started."""
        if self.process.poll() is not None:
            return None
        found = execution_log.children(self.process.pid)
        self._family.update({pid: execution_log.born(pid) for pid in found})
        return found[0] if found else None

    def kill(self, victim: Victim) -> bool:
        """`kill -9`; returns False where nothing was left to kill."""
        child = self.child
        parent = self.process.pid if self.process.poll() is None else None
        targets = {"both": [parent, child], "parent": [parent], "child": [child]}[victim]
        hit = False
        for pid in targets:
            if pid is not None and is_running(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    hit = True
        if victim != "parent" and child is not None:
            execution_log.until(lambda: not is_running(child), "a killed process to be gone")
        return hit

    def wait(self, timeout_s: float = execution_log.LONGEST_WAIT_S) -> Ended:
        """Wait for its end, and for that of the process it started."""
        child = self.child
        status = self.process.wait(timeout_s)
        if child is not None:
            execution_log.until(lambda: not is_running(child), "the optimizer's own process to end", timeout_s)
        texts = []
        for stream in (self._out, self._err):
            stream.seek(0)
            texts.append(stream.read().decode())
        return Ended(status, texts[0], texts[1])

    def end(self) -> None:
        """Kill what is left of it."""
        _ = self.child
        self.process.kill()
        self.process.wait(10)
        for pid, born in self._family.items():
            if born is not None and execution_log.born(pid) == born and is_running(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._out.close()
        self._err.close()


class Run:
    """One run in a folder of its own, from its start to its end, however many processes that takes.

    `store`: as `--store` takes it. `urls`: the servers. `log`: where the program notes its executions. `fork_server`:
    makes its processes forks, for accidents that are not the optimizer's own.
    """

    def __init__(
        self,
        setup: Setup,
        folder: Path,
        urls: Sequence[str],
        *,
        store: str | None = None,
        environment: Mapping[str, str] | None = None,
        lease_s: float = LEASE_S,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.setup = setup
        self.folder = folder
        self.urls = list(urls)
        self.store = store or str(folder / "store.db")
        self.environment = dict(environment or {})
        self.lease_s = lease_s
        self._fork_server = fork_server
        self.log = folder / "executions"
        self.drivers: list[Driver] = []
        self.id = ""
        folder.mkdir(parents=True, exist_ok=True)
        setup.write_rows(folder, self.log)

    # --- processes ---------------------------------------------------------------------------------------------------

    def start(self) -> Driver:
        """`evolverpc optimize`."""
        flags = [*self.setup.flags(), "--store", self.store, "--lease-s", self.lease_s, "--no-check"]
        return self._drive("optimize", *self.urls, *flags)

    def resume(self) -> Driver:
        """`evolverpc resume`."""
        return self._drive("resume", self.find(), "--store", self.store)

    def _drive(self, *arguments: object) -> Driver:
        driver = Driver(arguments, self.folder, self.environment, self._fork_server)
        self.drivers.append(driver)
        return driver

    def begin_again(self) -> Driver:
        """Resume the run, or start it if the fault came before it was stored."""
        return self.resume() if self.find() else self.start()

    def end(self) -> None:
        """Kill the drivers that still run."""
        for driver in self.drivers:
            driver.end()

    # --- the store ---------------------------------------------------------------------------------------------------

    def find(self) -> str:
        """The run's id; empty while the store has none."""
        if not self.id:
            if not self.store.startswith("mongodb") and not Path(self.store).exists():
                return ""
            with self._opened() as store:
                found = [run.id for run in store.runs() if run.output and self.folder in Path(run.output).parents]
            assert len(found) <= 1, f"one run was started, and there are {found}"
            self.id = found[0] if found else ""
        return self.id

    def status(self) -> str:
        """The run's status, as the store has it."""
        return str(self._stored().status)

    def claimed(self) -> bool:
        """Whether a driver claimed it, alive or dead."""
        return self._stored().claim.owner is not None

    def retracing(self) -> bool:
        """Whether examples run only for traces that were lost."""
        with self._opened() as store:
            attempts = store.attempts(self.find(), SEARCH)
        return any(attempt.kind == "retrace" and attempt.outcome is None for attempt in attempts)

    def last_part(self) -> str:
        """The kind of the part that the journal has reached: `search`, `ties` or `test`."""
        with self._opened() as store:
            found = {part.partition("-")[0] for part in store.parts(self.find())}
        return next(kind for kind in ("test", "ties", "search") if kind in found)

    def mismatches(self) -> list[str]:
        """What `evolverpc verify` finds of the run's certificate."""
        with self._opened() as store:
            run = store.run(self.find())
            certificate = json.loads((self.folder / str(run.output) / "certificate.json").read_text())
            return mismatches(store, run, certificate)

    def _stored(self) -> Any:
        with self._opened() as store:
            return store.run(self.find())

    def _opened(self) -> contextlib.closing[Any]:
        return contextlib.closing(open_store(self.store))

    def wait_for(self, executions: int, driver: Driver | None = None) -> None:
        """Wait until so much has been noted by the program, or the driver has ended."""
        execution_log.until(
            lambda: (
                execution_log.noted(self.log) >= executions
                or (driver is not None and driver.process.poll() is not None)
            ),
            f"line {executions}",
        )

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self, driver: Driver) -> Ended:
        """Wait for the end of the run, resuming it while another driver seems to hold it or it has paused."""
        for _ in range(RESUMES):
            ended = driver.wait()
            if ended.status == COMPLETED:
                return ended
            busy = "is driven by pid " in ended.reason
            assert busy or ended.status == PAUSED, str(ended)
            driver = self.begin_again()
        raise AssertionError(f"the run would not end: {ended}")

    def outcome(self) -> Outcome:
        """What the run came to."""
        output = self._stored().output
        return outcome_of(self.store, self.find(), self.folder / output)

    def executions(self) -> Executions:
        """What really ran."""
        return executions_of(self.store, self.find(), self.log)
