"""Read what is known once a run has ended for now: its certificate, its summary, what was copied from rows."""

from gepa_client.analysis.explanation import explain
from gepa_client.certificate.certificate import Certificate, certify
from gepa_client.errors import NoCertificate
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import OVER
from gepa_client.page.ending_events import CertificateFound, Copied, FinishedRun, LeaksFound, ScoreOnTestRows, Ties
from gepa_client.page.event_log import EventLog
from gepa_client.page.moment_events import RunWarning
from gepa_client.page.search_events import MetricCalls
from gepa_client.page.summary import summary_of
from gepa_client.report.recorded_run import record_of
from gepa_client.report.run_record import RunRecord

NO_CERTIFICATE = dict.fromkeys(name for name in CertificateFound.model_fields if name not in ("id", "type"))


class EndingReader:
    """The ends of one run, each read once. `until`: as of `record_of`."""

    def __init__(self, store: Store, run_id: str, log: EventLog, until: int | None) -> None:
        self._store, self._id, self._log, self._until = store, run_id, log, until
        self._read: tuple[str, str] | None = None

    def is_read(self, run: StoredRun) -> bool:
        """Return whether this end was read."""
        return self._read == _mark(run)

    def resumed(self) -> bool:
        """Note that the run is driven again, and return whether an end was read before."""
        if self._read is None:
            return False
        self._read = None
        self._log.add(FinishedRun(status=None, reason=None, completed=None, active_seconds=None))
        return True

    def read(self, run: StoredRun) -> None:
        """Add what is known of this end."""
        if self.is_read(run):
            return
        self._read = _mark(run)
        if run.status == "pending":
            return
        self._log.add(
            FinishedRun(
                status=run.status,
                reason=run.reason,
                completed=run.completed,
                active_seconds=run.counters.get("active_seconds"),
            )
        )
        if run.identity is None:
            return
        record = record_of(self._store, run, self._until)
        for message in record.warnings:
            self._log.add(RunWarning(at=None, message=message))
        if record.ties is not None:
            fields = ("best", "rows", "validation_rows", "validation_left", "candidates")
            self._log.add(Ties(**{name: getattr(record.ties, name) for name in fields}))
            self._log.add(MetricCalls(at=record.ties.at or 0, metric_calls=record.ties.metric_calls))
        for index, tested in record.tested.items():
            self._log.add(
                ScoreOnTestRows(candidate=index, score=tested.score, rows=tested.rows, repeats=tested.repeats)
            )
        if (copied := record.copied) is not None:
            self._log.add(Copied(count=copied.count, candidates=copied.candidates, copies=copied.copies))
        if run.status in OVER and record.sealed is not None and self._until is None:
            self._add_certificate(run, record)
        self._log.add(summary_of(record, explain(self._store, run, self._until)))

    def _add_certificate(self, run: StoredRun, record: RunRecord) -> None:
        try:
            found = record.certificate = certify(self._store, run)
        except NoCertificate as error:
            record.no_certificate = str(error)
            self._log.add(CertificateFound(**{**NO_CERTIFICATE, "none": str(error)}))
            return
        self._log.add(_certificate_event(found))
        self._log.add(LeaksFound.model_validate({"type": "leaks", **found.leaks.model_dump()}))


def _certificate_event(found: Certificate) -> CertificateFound:
    test, validation = found.test, found.validation
    return CertificateFound(
        none=None,
        verdict=found.verdict,
        statement=found.statement,
        candidate=found.candidate,
        rows=test.rows,
        repeats=test.repeats,
        seed=test.seed,
        best=test.best,
        difference=test.difference,
        low=test.low,
        high=test.high,
        confidence=test.confidence,
        p_value=test.p_value,
        validation_estimate=validation.estimate,
        validation_low=validation.low,
        validation_high=validation.high,
    )


def _mark(run: StoredRun) -> tuple[str, str]:
    """Return what differs between two ends of a run."""
    return run.status, run.updated
