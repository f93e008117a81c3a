"""The report and the certificate of a job, from the record of its run: GEPA decides again, and nothing is called."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, cast

from evolverpc_common.settings.sources import SettingsError
from gepa_client.analysis.explanation import explain
from gepa_client.certificate.certificate import Certificate, certify
from gepa_client.errors import ClientError, NoCertificate, NoSuchRun, summary
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store, default_store, open_store
from gepa_client.page import embedded
from gepa_client.page.built_page import PageMissing
from gepa_client.page.recorded_decisions import KnownRun
from gepa_client.page.replay_follower import ReplayFollower
from gepa_client.report.markdown import markdown
from gepa_client.report.record import RunRecord
from gepa_client.run.gateway_record import recorded_gateway_events
from gepa_service.jobs.settings_of_jobs import DECIDED

LONGEST_S = 300.0
"""Seconds that a replay may take."""

POLL_S = 0.05
SHOWN_SETTINGS = frozenset({"trainset", "valset", "testset", "ref"})
"""Settings that the service decides and a tenant sees all the same."""

Kind = Literal["html", "markdown"]


class NoReport(Exception):
    """There is no report or certificate; the text has the reason."""


def report_of(journals: str, job_id: str, kind: Kind) -> bytes:
    """Return the report of an ended run. Blocks for seconds. `journals`: as `open_store` takes it.

    Raises:
        NoReport: there is no such run, or it cannot be replayed.
        StoreUnavailable: the store cannot be read now.
    """
    with _opened(journals, job_id) as (store, run):
        record = _replayed(journals, run)
        calls, refused = recorded_gateway_events(store, run.id)
        record.apply(calls)
        for event in refused:
            record.apply(event)
        try:
            record.certificate = certify(store, run)
        except ClientError as error:
            record.no_certificate = str(error) if isinstance(error, NoCertificate) else summary(error)
        explained = explain(store, run)
        if kind == "markdown":
            return markdown(record, explained).encode("utf-8", "replace")
        try:
            return embedded.exported(
                cast("Store", TenantView(store)), default_store(), run.id, KnownRun(record, explained)
            )
        except PageMissing as error:
            raise NoReport(str(error)) from None


def certificate_of(journals: str, job_id: str) -> Certificate:
    """Return the certificate of a run.

    Raises:
        NoReport: there is no such run, or none can be given; the text has the reason.
        StoreUnavailable: the store cannot be read now.
    """
    with _opened(journals, job_id) as (store, run):
        try:
            return certify(store, run)
        except NoCertificate as error:
            raise NoReport(str(error)) from None


@contextlib.contextmanager
def _opened(journals: str, job_id: str) -> Iterator[tuple[Store, StoredRun]]:
    with contextlib.closing(open_store(journals)) as store:
        try:
            yield store, store.run(job_id)
        except NoSuchRun:
            raise NoReport("the job has no run: it has not begun, or failed before its first example") from None


class TenantView:
    """A store whose runs are as a tenant may see them: without addresses and folders of the service's machines."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = default_store()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def run(self, run_id: str) -> StoredRun:
        """Return one run."""
        return replace((run := self._store.run(run_id)), output=None, driver=None, config=shown_settings(run.config))


def shown_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run without those that the service decides."""
    return {name: value for name, value in config.items() if name not in DECIDED or name in SHOWN_SETTINGS}


def _replayed(journals: str, run: StoredRun) -> RunRecord:
    record = RunRecord()
    deadline = time.monotonic() + LONGEST_S
    try:
        follower = ReplayFollower(journals, run)
    except (SettingsError, OSError) as error:
        raise NoReport(f"the run cannot be replayed: {error}") from None
    try:
        while not follower.ended:
            decided = follower.next()
            if decided is None:
                if time.monotonic() > deadline:
                    raise NoReport(f"the run cannot be replayed within {LONGEST_S:g} s")
                time.sleep(POLL_S)
            elif decided.error is not None:
                raise NoReport(f"the run cannot be replayed: {decided.error}")
            elif decided.event is not None:
                record.apply(decided.event)
    finally:
        follower.close()
    if record.started is not None:
        config = shown_settings(record.started.config)
        shown = {"config": config, "store": default_store(), "url": "a sandbox of the service"}
        record.started = record.started.model_copy(update=shown)
    return record
