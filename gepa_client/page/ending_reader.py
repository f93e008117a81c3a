"""Read what is known once a run has ended for now: its certificate, its summary, what was copied from rows."""

from pathlib import Path

from gepa_client.analysis.copied_examples import copied_examples
from gepa_client.analysis.explanation import explain
from gepa_client.analysis.retried_examples import retried_examples
from gepa_client.certificate.certificate import Certificate, certify
from gepa_client.errors import NoCertificate
from gepa_client.journal.entries import COMMITMENT, StoredRun
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import OVER
from gepa_client.page.decision_reader import DecisionReader
from gepa_client.page.ending_events import CertificateFound, Copied, FinishedRun, LeaksFound
from gepa_client.page.event_log import EventLog
from gepa_client.page.moment_events import RunWarning
from gepa_client.page.recorded_decisions import KnownRun
from gepa_client.page.summary import summary_of
from gepa_client.report.run_record import RunRecord
from gepa_client.run.output_folder import HostTotals, host_totals

NO_CERTIFICATE = dict.fromkeys(name for name in CertificateFound.model_fields if name not in ("id", "type"))


class EndingReader:
    """The ends of one run, each read once. `known`: a run that has ended, whose record is known."""

    def __init__(
        self, store: Store, run_id: str, log: EventLog, decisions: DecisionReader, known: KnownRun | None
    ) -> None:
        self._store, self._id, self._log = store, run_id, log
        self._decisions, self._known = decisions, known
        self._read: tuple[str, str] | None = None

    def is_read(self, run: StoredRun) -> bool:
        """Return whether this end was read."""
        return self._read == _mark(run)

    def resumed(self) -> None:
        """Note that the run is driven again, if an end was read."""
        if self._read is not None:
            self._read = None
            self._log.add(FinishedRun(status=None, reason=None, completed=None, active_seconds=None))

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
        record = self._decisions.record
        copied = copied_examples(self._store, self._id) if self._known is None else record.copied
        if copied is not None:
            self._log.add(Copied(count=copied.count, candidates=copied.candidates, copies=copied.copies))
        if run.status in OVER and self._store.entries(self._id, COMMITMENT, 0, 1, largest=0):
            self._add_certificate(run, record)
        if self._known is not None:
            for message in record.warnings:
                self._log.add(RunWarning(at=None, message=message))
            self._log.add(summary_of(record, self._known.explained))
        elif self._decisions.replayed is not None and record.finished is not None:
            record.apply(record.finished.model_copy(update={"status": run.status, "reason": run.reason}))
            record.hosts, record.retried = self._hosts(run), retried_examples(self._store, self._id)
            self._log.add(summary_of(record, explain(self._store, run)))

    def _hosts(self, run: StoredRun) -> dict[str, HostTotals]:
        try:
            return host_totals(Path(run.output)) if run.output is not None else {}
        except (OSError, ValueError) as error:
            self._log.add(RunWarning(at=None, message=f"the connections of sandboxes are not shown: {error}"))
            return {}

    def _add_certificate(self, run: StoredRun, record: RunRecord) -> None:
        if self._known is None:
            try:
                record.certificate = certify(self._store, run)
            except NoCertificate as error:
                record.no_certificate = str(error)
        if record.certificate is not None:
            self._log.add(_certificate_event(record.certificate))
            self._log.add(LeaksFound.model_validate({"type": "leaks", **record.certificate.leaks.model_dump()}))
        elif record.no_certificate is not None:
            self._log.add(CertificateFound(**{**NO_CERTIFICATE, "none": record.no_certificate}))


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
