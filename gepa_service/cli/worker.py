"""`gepa-service worker`: run jobs, until SIGTERM or Ctrl-C lets other workers continue them."""

import logging
import os
import signal
from contextlib import closing
from pathlib import Path

from gepa_client.journal.store import open_store
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.jobs.attempt import WorkerParts
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.jobs.worker import Worker, worker_name
from gepa_service.records.open_records import open_records
from gepa_service.secrets.master_key import source_of
from gepa_service.secrets.vault import Vault


def work(records: str, journals: str, api: str, folder: Path, at_once: int, sandbox: str, lease_s: float) -> None:
    """Run a worker to its end.

    Raises:
        RecordError, JournalError, MasterKeyError: a database, or the master key, cannot be used.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    keys = source_of(os.environ).read()
    with closing(open_records(records)) as opened, closing(open_store(journals)) as store:
        vault = Vault(opened, keys)
        vault.verify()
        parts = WorkerParts(
            name=worker_name(),
            records=opened,
            journals=store,
            tokens=JobTokens(opened, [key.value for key in keys]),
            api=api.rstrip("/"),
            folder=folder.resolve(),
            lease_s=lease_s,
            sandbox=sandbox,
            secrets=lambda tenant: revealed(vault, tenant),
        )
        worker = Worker(parts, at_once)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.drain())
        logging.getLogger(__name__).info("worker %s runs up to %d jobs at once", parts.name, at_once)
        worker.run()
