"""The events of a run: read its progress at intervals, and write them all, without secrets, to supervisor and file."""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from evolverpc_common.files import write_all
from evolverpc_common.redaction import Secrets
from gepa_client.errors import unreadable
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.journal.journal import Journal
from gepa_client.journal.run_events import (
    Decision,
    Emit,
    Event,
    Finished,
    OfProcess,
    Progress,
    Started,
    Steered,
    Warned,
)
from gepa_client.run.gateway_record import GatewayRecord

REPORT_EVERY_S = 0.1
"""Seconds between two readings of the progress."""


class EventWriter:
    """Stamp events and write them, in order, to the supervisor and to a new file.

    A thread does it, so that an interruption of the main thread never cuts a line in half. `path`: the file, None for
    none; what an earlier process wrote there stays until this one emits `started`.
    """

    def __init__(self, descriptor: int, path: Path | None) -> None:
        self._descriptor = descriptor
        self._file = _EventsFile(path) if path is not None else None
        self._began = time.monotonic()
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="events", daemon=True)
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Queue one event; may be called from any thread."""
        self._events.put(event.model_copy(update={"seconds": round(time.monotonic() - self._began, 3)}))

    def close(self) -> None:
        """Write what is queued."""
        self._events.put(None)
        self._thread.join()

    def _write(self) -> None:
        supervisor_reads = True
        totals: bytes | None = None  # only the last totals go into the file
        while (event := self._events.get()) is not None:
            line = event.model_dump_json().encode() + b"\n"
            if supervisor_reads:
                supervisor_reads = write_all(self._descriptor, line)  # without it the file is still written
            if event.event == "model_calls":
                totals = line
            elif self._file is not None and event.event != "progress":
                last = totals if isinstance(event, Finished) and totals is not None else b""
                try:
                    self._file.add(last + line, begins=isinstance(event, Started))
                except OSError as error:  # the run continues without its event file
                    fault = unreadable(self._file.path, error)
                    self._file = None
                    self.emit(Warned(message=f"events are no longer written: {fault}"))


class _EventsFile:
    """The file. Lines before `started` wait for it, as they may be of a process that never drives the run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before: list[bytes] = []
        self._begun = not path.exists()

    def add(self, line: bytes, *, begins: bool) -> None:
        if not self._begun and not begins:
            self._before.append(line)
            return
        mode = "ab" if self._begun else "wb"
        with self.path.open(mode) as file:
            file.write(b"".join([*self._before, line]))
        self._begun, self._before = True, []


def placed(emit: Emit, journal: Journal) -> Emit:
    """Return `emit` with the place in the journal added to each event. Each is recorded, too, as `record` describes."""

    def emit_placed(event: Event) -> None:
        event = event.model_copy(update={"at": journal.next_number})
        record(event, journal)
        emit(event)

    return emit_placed


def record(event: Event, journal: Journal) -> None:
    """Write a decision of GEPA, or an event of the process, into the journal; ignore other events."""
    without = {"seconds", "max_metric_calls"} if isinstance(event, Steered) else {"seconds"}
    fields = event.model_dump(mode="json", exclude=without, exclude_defaults=True)
    if isinstance(event, Decision) and not (isinstance(event, Steered) and event.number is None):
        journal.decided(event.event, fields | event.recorded)
    elif isinstance(event, OfProcess) and not journal.replays:
        journal.noted(event.event, fields)


def redacting(secrets: Secrets, emit: Emit) -> Emit:
    """Return `emit` with every secret in the texts of events replaced: servers and models repeat their input."""

    def emit_redacted(event: Event) -> None:
        emit(event.model_copy(update={name: _clean(secrets, value) for name, value in event if name != "event"}))

    return emit_redacted


def _clean(secrets: Secrets, value: Any) -> Any:
    if isinstance(value, str):
        return secrets.redact_text(value)
    if isinstance(value, dict):
        return {key: _clean(secrets, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_clean(secrets, part) for part in value]
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: _clean(secrets, part) for name, part in value})
    return value


@contextmanager
def progress_reported(adapter: RemoteAdapter, emit: Emit, gateway: GatewayRecord) -> Iterator[None]:
    """Emit a `progress` event, and totals of the gateway, a few times a second in the block while they change.

    Regular readings are needed: at the moment an example ends, its slot is empty.
    """
    over = threading.Event()

    def report() -> None:
        last, is_last = Progress(evaluated=0, in_flight=0), False
        while not is_last:
            is_last = over.wait(REPORT_EVERY_S)  # the last reading comes after everything has ended
            endpoints = adapter.fleet.endpoints
            reading = Progress(
                evaluated=adapter.tally.examples,
                in_flight=adapter.fleet.in_flight,
                up=sum(not endpoint.resting for endpoint in endpoints),
                endpoints=len(endpoints),
                slots=adapter.fleet.slots,
                waiting=adapter.fleet.waiting,
                spent_usd=round(adapter.journal.spending.cost_usd, 6),
            )
            if reading != last:
                last = reading
                emit(reading)
            if (news := gateway.news(at_once=is_last)) is not None:
                emit(news)

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
