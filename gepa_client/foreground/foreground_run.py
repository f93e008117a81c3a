"""A run in the foreground: its driver process, its display, its reports, and how Ctrl-C reaches it."""

import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Self

from rich.console import Console

from evolverpc_common.files import replace_file
from evolverpc_common.processes import signals_handled
from gepa_client.certificate.certificate import certify
from gepa_client.errors import ClientError, JournalError, NoCertificate, summary
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.run_events import Finished
from gepa_client.journal.store import open_store
from gepa_client.page import report_file
from gepa_client.page.built_page import PageMissing
from gepa_client.run import output_folder as files
from gepa_client.run.control_messages import DriverJob
from gepa_client.run.recorded_run import view_of
from gepa_client.run.run_view import RunView
from gepa_client.run.supervisor import HASH_SEED, DriverProcess, LaunchDriver, launch_here
from gepa_client.sandboxing.session_interface import Log, NoSandboxes
from gepa_client.settings.run_config import RunConfig
from gepa_client.views import final_summary
from gepa_client.views.console import fail, log_markup, make_console, print_json
from gepa_client.views.final_summary import RunSummary
from gepa_client.views.live_display import Display, EventStream, JsonDisplay, LiveDisplay, PlainDisplay

TICK_S = 0.125


@dataclass(frozen=True)
class ForegroundRun:
    """A run to be driven in a driver process, and how it is displayed. `store_typed`: None if no store was named.

    `run`: as this command read it. `output`, `seen_requests`, `if_blocked`: as in `DriverJob`. `sandboxes`: None if it
    calls no server. `display`: None for that of a command. `resumed_by`, `typed`: as in `RunSummary`. `launch`: as of
    `DriverProcess`.
    `driver_store`: the store as the driver process reaches it, if that is at another address. `driver_writes`: whether
    the driver process writes its own files into `output`, too; no file that another wrote there is read otherwise.
    """

    settings: RunConfig
    store: str
    store_typed: str | None
    run: StoredRun
    output: Path | None
    json_events: bool
    console: Console = field(default_factory=make_console)
    stream: EventStream = field(default_factory=lambda: EventStream(None))
    replays: bool = False
    until: int | None = None
    seen_requests: int = 0
    sandboxes: NoSandboxes | None = None
    display: Display | None = None
    resumed_by: str | None = None
    typed: str | None = None
    if_blocked: str | None = None
    launch: LaunchDriver = launch_here
    driver_store: str | None = None
    driver_writes: bool = True

    def drive(self) -> RunSummary:
        """Drive the run to its end, and print its summary."""
        display: Display = self.display or (
            JsonDisplay()
            if self.json_events
            else LiveDisplay(self.console)
            if self.console.is_terminal
            else PlainDisplay(self.console)
        )
        sandboxes = self.sandboxes or NoSandboxes(self.settings)
        job = DriverJob(
            store=self.driver_store or self.store,
            run_id=self.run.id,
            owner=uuid.uuid4().hex,
            config=self.settings.model_dump(mode="json", exclude_unset=True),
            output=self.output if self.driver_writes else None,
            replays=self.replays,
            until=self.until,
            seen_requests=self.seen_requests,
            gateway=sandboxes.has_gateway,
            if_blocked=self.if_blocked,
        )

        def show(log: Log) -> None:
            display.note(log_markup(log))

        view = RunView()
        began = time.monotonic()
        hash_seed = (self.run.identity or {}).get("hash_seed") or HASH_SEED
        with self._log() as log, DriverProcess(job, log, hash_seed, self.launch) as process:
            with _StopOnSignals(process, display).handled() as stops, sandboxes.reporting_to(process), display:
                try:
                    while True:
                        stops.attend()
                        sandboxes.forward(process, show)
                        event = process.next(TICK_S)
                        view.seconds = time.monotonic() - began
                        if event is None:
                            display.tick(view)
                        else:
                            view.apply(event)
                            sandboxes.observe(event)
                            self.stream.event(event)
                            shown = event if self.json_events else sandboxes.displayed(event)
                            if shown is not None:
                                display.event(shown, view)
                except EOFError:
                    pass
                if self.output is not None and view.finalized is not None and view.finalized.endpoint is not None:
                    for note in sandboxes.collect_artifacts(view.finalized.endpoint, self.output / files.ARTIFACTS):
                        show(note)
            status = process.end()
            finished = view.finished
            if finished is None:
                finished = self._died(job, status, stops.received, process.log_tail(), view)
                view.apply(finished)
                self.stream.event(finished)
                display.event(finished, view)
        self._record_late(sandboxes, view)
        self._write_connections(sandboxes, view)
        connected = view.started is not None
        recorded = None if connected and not finished.in_replay else self._recorded(finished)
        written = self._results(view, finished) if recorded is None else self._kept_files()
        ended = RunSummary(
            settings=self.settings,
            run_id=self.run.id,
            store=self.store_typed,
            output=self.output,
            view=recorded or view,
            finished=finished,
            connected=connected,
            written=list(dict.fromkeys([*finished.files, *written])),
            seconds=time.monotonic() - began,
            replayed=self.replays,
            by_hand=stops.received > 0,
            resumed_by=self.resumed_by or self.stream.resumed_by(self.run.id),
            typed=self.typed,
            in_replay=recorded is not None,
        )
        self.stream.summary(final_summary.as_json(ended))
        if self.json_events:
            print_json(final_summary.as_json(ended))
        else:
            final_summary.show(ended, self.console)
        return ended

    def _record_late(self, sandboxes: NoSandboxes, view: RunView) -> None:
        """End the sandboxes and record the model calls that ended after the driver."""
        if not sandboxes.has_gateway:
            return
        from gepa_client.run.gateway_record import record_late_calls
        from gepa_client.run.resolved_settings import known_secrets

        try:
            secrets = known_secrets(sandboxes.settings, self.store)  # some are in files that go with the sandboxes
            if late := sandboxes.end():
                for event in record_late_calls(self.store, self.run.id, secrets, late):
                    view.apply(event)
        except ClientError as error:
            fail(f"the last calls of models are not in the run's record: {summary(error)}")

    def _write_connections(self, sandboxes: NoSandboxes, view: RunView) -> None:
        """Write which hosts programs in sandboxes connected to, and have the report list those of the whole run."""
        if self.output is None:
            return
        try:
            sandboxes.write_connections(self.output / files.CONNECTIONS)
            view.hosts = files.host_totals(self.output)
        except (OSError, ValueError) as error:
            fail(f"the connections of sandboxes are not in the report: {error}")

    def _recorded(self, finished: Finished) -> RunView | None:
        """Return what is recorded of a run that was stopped before its replay was complete; None for any other end."""
        if self.replays or not (finished.in_replay or finished.status == "paused"):
            return None
        try:
            with closing(open_store(self.store)) as store:
                view = view_of(store, store.run(self.run.id))
        except JournalError as error:
            fail(f"what is recorded of the run cannot be read: {summary(error)}")
            return None
        return view if view.best is not None else None

    def _kept_files(self) -> list[str]:
        """Return the names of the files of an earlier end."""
        names = (files.BEST_CANDIDATE, files.RESULT, files.CERTIFICATE, files.REPORT)
        return [name for name in names if self.output is not None and (self.output / name).exists()]

    def _results(self, view: RunView, finished: Finished) -> list[str]:
        """Write the certificate and the report, if the run started here; return their names."""
        if self.output is None or view.started is None or finished.status == "refused":
            return []
        written: list[str] = []
        try:
            written += self._certify(view, self.output) if self.until is None else []
            with closing(open_store(self.store)) as store:
                report = report_file.exported(store, self.store, self.run.id, self.until)
            replace_file(self.output / files.REPORT, report)
            written.append(files.REPORT)
        except OSError as error:
            fail(f"the report cannot be written: {error}")
        except (JournalError, PageMissing) as error:
            fail(f"{files.REPORT} cannot be written: {summary(error)}")
        return written

    def _certify(self, view: RunView, output: Path) -> list[str]:
        """Write the certificate, or remove that of an earlier end; return its name if there is one."""
        try:
            with closing(open_store(self.store)) as store:
                view.certificate = certify(store, store.run(self.run.id))
        except ClientError as error:
            view.no_certificate = str(error) if isinstance(error, NoCertificate) else summary(error)
            (output / files.CERTIFICATE).unlink(missing_ok=True)
            return []
        files.write_json(output / files.CERTIFICATE, view.certificate.model_dump(mode="json"))
        return [files.CERTIFICATE]

    @contextmanager
    def _log(self) -> Iterator[Path]:
        """Return the log file of the driver process: in the output folder, else in a temporary one."""
        if self.output is not None:
            yield self.output / files.LOG
            return
        with tempfile.TemporaryDirectory(prefix="gepa-replay-") as folder:
            yield Path(folder) / files.LOG

    def _died(self, job: DriverJob, status: int, signals: int, tail: str, view: RunView) -> Finished:
        """Return the last event of a process that could not emit it, and release its lease."""
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        reason = "stopped by hand, at once" if signals > 1 else f"the driver process {how} before its run was over"
        active_seconds = None if self.replays else self._let_go(job, reason)
        return Finished(
            active_seconds=active_seconds,
            seconds=view.seconds,
            status="paused",
            reason=reason,
            infrastructure=signals == 0,
            details=f"the end of its log:\n{tail}" if tail and signals <= 1 else None,
            metric_calls=view.metric_calls,
            in_replay=view.phase == "replaying" and not self.replays,
            files=[files.BEST_CANDIDATE] if view.candidates and job.output is not None else [],
        )

    def _let_go(self, job: DriverJob, reason: str) -> float | None:
        """Pause the run in the store; return the seconds it was driven, as last recorded."""
        try:
            with closing(open_store(self.store)) as store:
                run = store.run(job.run_id)
                if run.claim.owner == job.owner:
                    store.update(job.run_id, {"status": "paused", "reason": reason}, owner=job.owner)
                    store.release(job.run_id, job.owner)
                return run.counters.get("active_seconds")
        except JournalError as error:
            self.console.print(f"[yellow]the run's record could not be brought up to date:[/] {summary(error)}")
            return None


class _StopOnSignals:
    """Turns Ctrl-C and SIGTERM into a stop that keeps everything; the second one kills the process.

    The handler only counts; `attend`, called from the loop, acts, so that no print is interrupted by another.
    """

    def __init__(self, process: DriverProcess, display: Display) -> None:
        self._process = process
        self._display = display
        self.received = 0
        self._attended = 0

    @contextmanager
    def handled(self) -> Iterator[Self]:
        """Handle both signals during the block; only the main thread receives signals."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        with signals_handled(self._on_signal, signal.SIGINT, signal.SIGTERM):
            yield self

    def attend(self) -> None:
        """Act on the signals received since the last call."""
        while self._attended < self.received:
            self._attended += 1
            if self._attended == 1:
                self._display.note("stopping after examples in flight; everything is kept (Ctrl-C again stops at once)")
                self._process.stop()
            else:
                self._process.kill()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.received += 1
