"""The report and the certificate of a job, from the record of its run."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import orjson

from gepa_client.analysis.explanation import explain
from gepa_client.certificate.certificate import Certificate, certify
from gepa_client.errors import JournalError, NoCertificate, NoSuchRun, StoreUnavailable
from gepa_client.journal.entries import PROCESSES, Entry, StoredRun
from gepa_client.journal.store import Store, default_store
from gepa_client.page import report_file
from gepa_client.page.built_page import PageMissing
from gepa_client.report import summary_fields as fields
from gepa_client.run.recorded_run import view_of
from gepa_service.jobs.settings_of_jobs import shown_settings


class NoReport(Exception):
    """There is no report or certificate; the text has the reason."""


def report_of(store: Store, job_id: str) -> bytes:
    """Return the report of an ended run, a page. Blocks for seconds.

    Raises:
        NoReport: there is no such run, or it never began.
        StoreUnavailable: the store cannot be read now.
    """
    with _recorded(store, job_id) as (view, run):
        return report_file.exported(view, default_store(), run.id)


def story_of(store: Store, job_id: str) -> list[str]:
    """Return what happened in an ended run, in sentences, with each change on the way to its best candidate.

    Raises: as `report_of`.
    """
    with _recorded(store, job_id) as (view, run):
        explained = explain(view, run)
        record = view_of(view, run)
        with contextlib.suppress(NoCertificate):
            record.certificate = certify(view, run)
        steps = explained.steps if explained is not None else ()
        return [
            *fields.story(record, explained),
            *(f"{step.title}. {step.origin}" for step in steps),
        ]


@contextlib.contextmanager
def _recorded(store: Store, job_id: str) -> Iterator[tuple[Store, StoredRun]]:
    """Yield the store as a tenant may see it, with a run that has begun. Raises: as `report_of`."""
    run = _run(store, job_id)
    if run.identity is None:
        raise NoReport("the run has not evaluated an example")
    view = cast("Store", TenantView(store))
    try:
        yield view, view.run(run.id)
    except StoreUnavailable:
        raise
    except (PageMissing, JournalError) as error:
        raise NoReport(str(error)) from None


def certificate_of(store: Store, job_id: str) -> Certificate:
    """Return the certificate of a run.

    Raises:
        NoReport: there is no such run, or none can be given; the text has the reason.
        StoreUnavailable: the store cannot be read now.
    """
    try:
        return certify(store, _run(store, job_id))
    except NoCertificate as error:
        raise NoReport(str(error)) from None


def _run(store: Store, job_id: str) -> StoredRun:
    try:
        return store.run(job_id)
    except NoSuchRun:
        raise NoReport("the job has no run: it has not begun, or failed before its first example") from None


class TenantView:
    """A store whose runs are as a tenant may see them: without addresses and folders of the service's machines."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = default_store()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def entries(self, run_id: str, part: str, *place: Any, **limits: Any) -> list[Entry]:
        """Return entries of a part."""
        found: list[Entry] = self._store.entries(run_id, part, *place, **limits)
        return [_of_tenant(entry) for entry in found] if part == PROCESSES else found

    def run(self, run_id: str) -> StoredRun:
        """Return one run."""
        return replace((run := self._store.run(run_id)), output=None, driver=None, config=shown_settings(run.config))


def _of_tenant(entry: Entry) -> Entry:
    """Return what the processes of a run recorded, without the address of its server and the service's settings."""
    answer: dict[str, Any] = orjson.loads(entry.answer)
    if "config" not in answer:
        return entry
    shown = {"config": shown_settings(answer["config"]), "store": default_store(), "url": "a sandbox of the service"}
    return replace(entry, answer=orjson.dumps({**answer, **shown}))
