"""The examples that were tried again: an entry for each attempt that left some."""

import threading
from dataclasses import asdict

from pydantic import BaseModel, ConfigDict

from evolverpc_common.redaction import Secrets
from gepa_client.journal.buffer import JournalStorage
from gepa_client.journal.entries import RETRY, Entry
from gepa_client.transport.calls import FailedTry


class RetryEntry(BaseModel):
    """What such an entry holds. `part`, `number`, `kind`: of the attempt; `failed`: its examples that failed."""

    model_config = ConfigDict(extra="forbid")

    part: str
    number: int
    kind: str
    failed: list[FailedTry]


class RetryRecord:
    """The entries of one run, numbered over all its streams and processes. May be used from any thread."""

    def __init__(self, storage: JournalStorage, secrets: Secrets) -> None:
        self._storage, self._secrets = storage, secrets
        self._lock = threading.Lock()
        self._next = 0

    def entry(self, retried: RetryEntry, *, digest: str, about: str) -> Entry:
        """Return the entry to write. `digest`, `about`: of the request."""
        with self._lock:
            while self._storage.read(RETRY, self._next) is not None:
                self._next += 1
            at, self._next = self._next, self._next + 1
        answer = self._secrets.written({**dict(retried), "failed": [asdict(each) for each in retried.failed]})
        return Entry(RETRY, at, RETRY, digest, self._secrets.redact_text(about), answer)
