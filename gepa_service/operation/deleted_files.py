"""Remove the files of work and tenants that were deleted, and delete what is older than the operator keeps it."""

import logging
import re
import threading
from datetime import timedelta
from pathlib import Path

from evolverpc_common.files import remove_tree
from gepa_client.errors import JournalError
from gepa_client.journal.store import Store
from gepa_service.jobs.attempt import Place
from gepa_service.jobs.job_environment import cache_folder
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.model.work import Work
from gepa_service.operation.deletion import delete_older
from gepa_service.records import RecordError, RecordStore, now

LOOK_S = 60.0
"""Seconds between two looks. What is missing at both is removed: processes of cancelled work have ended by then."""

OF_WORK = re.compile(r"((?:job|batch|step)_[0-9a-f]{32})-\d+")
_log = logging.getLogger(__name__)


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
        """Look once. Raises `RecordError`, `JournalError`, `OSError`."""
        if self._keep_days is not None:
            moment = now() - timedelta(days=self._keep_days)
            if count := delete_older(self._records, self._journals, moment, lambda: not stop.is_set()):
                _log.warning("deleted %d jobs, batches and steps that ended before %s", count, f"{moment:%Y-%m-%d}")
        missing = self._of_no_work() | self._of_no_tenant()
        for path in missing & self._missing:
            remove_tree(path)
        self._missing = missing

    def _of_no_work(self) -> set[Path]:
        found = {path: named[1] for path in self._place.folder.iterdir() if (named := OF_WORK.fullmatch(path.name))}
        known = self._records.known(Work, sorted(set(found.values())))
        return {path for path, id_ in found.items() if id_ not in known}

    def _of_no_tenant(self) -> set[Path]:
        known = {cache_folder(each.id, self._place.cache) for each in self._records.every(Tenant, TENANTS)}
        return set(self._place.cache.iterdir()) - known
