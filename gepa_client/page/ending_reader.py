"""Read what is known once a run has ended for now: its certificate, its summary, what was copied from rows."""

from gepa_client.analysis.explanation import explain
from gepa_client.certificate.certificate import certify
from gepa_client.errors import NoCertificate
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.run_events import Budget, Warned
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import OVER
from gepa_client.page.ending_events import CertificateFound
from gepa_client.page.event_log import EventLog
from gepa_client.page.summary import summary_of
from gepa_client.report.recorded_run import record_of
from gepa_client.report.run_record import RunRecord


class EndingReader:
    """The ends of one run, each read once. `until`: as of `record_of`."""

    def __init__(self, store: Store, run_id: str, log: EventLog, until: int | None) -> None:
        self._store, self._id, self._log, self._until = store, run_id, log, until
        self._read: tuple[str, str] | None = None

    def is_read(self, run: StoredRun) -> bool:
        """Return whether this end was read."""
        return self._read == _mark(run)

    def read(self, run: StoredRun) -> None:
        """Add what is known of this end."""
        if self.is_read(run):
            return
        self._read = _mark(run)
        if run.status == "pending" or run.identity is None:
            return
        record = record_of(self._store, run, self._until)
        for message in record.warnings:
            self._log.add(Warned(message=message))
        if record.ties is not None:
            self._log.add(record.ties)
            self._log.add(Budget(at=record.ties.at, metric_calls=record.ties.metric_calls))
        for tested in record.tested.values():
            self._log.add(tested)
        if record.copied is not None:
            self._log.add(record.copied)
        if run.status in OVER and record.sealed is not None and self._until is None:
            self._add_certificate(run, record)
        self._log.add(summary_of(record, explain(self._store, run, self._until)))

    def _add_certificate(self, run: StoredRun, record: RunRecord) -> None:
        try:
            found = record.certificate = certify(self._store, run)
        except NoCertificate as error:
            record.no_certificate = str(error)
            self._log.add(CertificateFound(none=record.no_certificate))
            return
        self._log.add(CertificateFound(certificate=found))


def _mark(run: StoredRun) -> tuple[str, str]:
    """Return what differs between two ends of a run."""
    return run.status, run.updated
