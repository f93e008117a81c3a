"""Delete work, repositories and tenants with all that is recorded of them, and then their files."""

import contextlib
import logging
import re
import threading
from datetime import datetime, timedelta
from pathlib import Path

from evolverpc_common.files import remove_tree
from gepa_client.errors import JournalError, NoSuchRun
from gepa_client.journal.store import Store
from gepa_service.jobs import control
from gepa_service.jobs.job_environment import Place, cache_folder
from gepa_service.jobs.promotions import PromotionRefused, is_active, withdraw
from gepa_service.model.program_version import Delivery, Program, Promotion, Repository
from gepa_service.model.tenant import TENANTS, ApiKey, AuditEntry, Member, Tenant
from gepa_service.model.work import ENDED, NAMES, LogChunk, TaskResult, Work
from gepa_service.records import Record, RecordError, RecordStore, TenantRecords, id_at, now
from gepa_service.webhooks import WebhookDelivery

UNFINISHED = {"status": ("pending", "running", "paused")}

LOOK_S = 60.0
"""Seconds between two looks. What is missing at both is removed: processes of cancelled work have ended by then."""

OF_WORK = re.compile(r"((?:job|batch|step)_[0-9a-f]{32})-\d+")
_log = logging.getLogger(__name__)


class DeletionRefused(Exception):
    """It is still in use; the text states by what, and what to do."""


def delete_work(records: RecordStore, journals: Store, work: Work) -> None:
    """Delete work that has ended, its run, its results and its log. A version that it made stays; so does its cost.

    Safe to repeat. Raises `DeletionRefused`: it has not ended. StoreUnavailable, RecordsUnavailable: some is deleted.
    """
    if work.status not in ENDED:
        raise DeletionRefused(f"the {NAMES[work.what]} is {work.status}: cancel it first")
    with contextlib.suppress(NoSuchRun):
        journals.delete(work.id)
    records.remove(LogChunk, work.tenant, {"job_id": work.id})
    records.remove(TaskResult, work.tenant, {"work_id": work.id})
    records.remove(Work, work.tenant, id_=work.id)


def delete_repository(
    records: TenantRecords, journals: Store, repository: Repository, actor: str, *, force: bool
) -> None:
    """Delete a repository with its work and its versions.

    `force`: also if one of them is active; its line has no active version then.

    Raises `DeletionRefused`: work of it has not ended, or a version is active.
    """
    store, own = records.store, {"client_id": repository.id}
    if unfinished := records.count(Work, {**UNFINISHED, **own}):
        raise DeletionRefused(
            f"{unfinished} jobs, batches or steps of the repository have not ended: cancel them first"
        )
    versions = list(store.every(Program, records.tenant, own))
    active = [each.id for each in versions if is_active(records, each)]
    if active and not force:
        raise DeletionRefused(
            f"the version {active[0]} of the repository is active: delete it all the same with ?force=true"
        )
    for work in store.every(Work, records.tenant, own):
        delete_work(store, journals, work)
    for version in versions:
        with contextlib.suppress(PromotionRefused):  # it is not the active one
            withdraw(records, version, actor)
        store.remove(Promotion, records.tenant, {"program_id": version.id})
        store.remove(Delivery, records.tenant, id_=version.id)
        store.remove(Program, records.tenant, id_=version.id)
    store.remove(Repository, records.tenant, id_=repository.id)


def delete_tenant(records: RecordStore, journals: Store, tenant: Tenant) -> None:
    """Delete a tenant with all that is recorded of it. Safe to repeat.

    Its keys and members go first, so that no caller adds anything; work that was submitted meanwhile is cancelled.

    Raises `DeletionRefused`: work of it has not ended.
    """
    if unfinished := records.count(Work, tenant.id, UNFINISHED):
        raise DeletionRefused(f"{unfinished} jobs, batches or steps of {tenant.id} have not ended: cancel them first")
    records.remove(ApiKey, TENANTS, {"owner": tenant.id})
    records.remove(Member, tenant.id)
    own = TenantRecords(records, tenant.id)
    for work in records.every(Work, tenant.id):
        ended = work if work.status in ENDED else control.cancel(own, journals, work, by="the deletion of its tenant")
        delete_work(records, journals, ended)
    for type_ in Record.__subclasses__():  # this module imports them all
        records.remove(type_, tenant.id)
    records.remove(Tenant, TENANTS, id_=tenant.id)


def delete_older(records: RecordStore, journals: Store, moment: datetime, stop: threading.Event) -> int:
    """Delete work that ended before the moment, and what was audited and sent before it; return how much work.

    `stop`: ends it before the next work.
    """
    count = 0
    for what in NAMES:
        for work in records.every(Work, None, {"what": what, "status": tuple(ENDED)}):
            if work.created >= moment or stop.is_set():
                break
            if (work.completed or work.updated) < moment:
                delete_work(records, journals, work)
                count += 1
    records.remove(AuditEntry, None, before=id_at("audit", moment))
    records.remove(WebhookDelivery, None, {"status": ("delivered", "failed")}, before=id_at("delivery", moment))
    return count


class DeletedFiles:
    """Used by one thread of the dispatcher. `keep_days`: how long ended work is kept; None: until it is deleted."""

    def __init__(self, records: RecordStore, journals: Store, place: Place, keep_days: float | None = None) -> None:
        self._records, self._journals, self._place, self._keep_days = records, journals, place, keep_days
        self._missing: set[Path] = set()

    def run(self, stop: threading.Event) -> None:
        """Look again and again until `stop` is set."""
        while not stop.is_set():
            try:
                self.look(stop)
            except (RecordError, JournalError, OSError) as error:
                _log.warning("deleted files: %s; continued in %g s", error, LOOK_S)
            stop.wait(LOOK_S)

    def look(self, stop: threading.Event) -> None:
        """Look once; what was deleted leaves the files of the databases too.

        Raises `RecordError`, `JournalError`, `OSError`.
        """
        if self._keep_days is not None:
            moment = now() - timedelta(days=self._keep_days)
            if count := delete_older(self._records, self._journals, moment, stop):
                _log.warning("deleted %d jobs, batches and steps that ended before %s", count, f"{moment:%Y-%m-%d}")
        missing = self._of_no_work() | self._of_no_tenant()
        for path in missing & self._missing:
            remove_tree(path)
        self._missing = missing
        self._records.purge()
        self._journals.purge()

    def _of_no_work(self) -> set[Path]:
        found = {path: named[1] for path in self._place.folder.iterdir() if (named := OF_WORK.fullmatch(path.name))}
        known = self._records.known(Work, sorted(set(found.values())))
        return {path for path, id_ in found.items() if id_ not in known}

    def _of_no_tenant(self) -> set[Path]:
        known = {cache_folder(each.id, self._place.cache) for each in self._records.every(Tenant, TENANTS)}
        return set(self._place.cache.iterdir()) - known
