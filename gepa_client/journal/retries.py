"""The examples that were tried again: an entry for each attempt that left some, so that later processes know them."""

import threading
from collections import defaultdict
from collections.abc import Sequence
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
    """The entries of one run, over all its streams; read when they are first needed. May be used from any thread."""

    def __init__(self, storage: JournalStorage, secrets: Secrets) -> None:
        self._storage, self._secrets = storage, secrets
        self._lock = threading.Lock()
        self._recorded: dict[tuple[str, int, str], list[FailedTry]] | None = None
        self._next = 0

    def earlier(self, part: str, number: int, kind: str) -> Sequence[FailedTry]:
        """Return what earlier processes recorded for the attempts of this kind for a request."""
        with self._lock:
            return self._read().get((part, number, kind), ())

    def entry(self, retried: RetryEntry, *, digest: str, about: str) -> Entry:
        """Return the entry to write. `digest`, `about`: of the request."""
        with self._lock:
            self._read()
            at, self._next = self._next, self._next + 1
        answer = self._secrets.written({**dict(retried), "failed": [asdict(each) for each in retried.failed]})
        return Entry(RETRY, at, RETRY, digest, self._secrets.redact_text(about), answer)

    def _read(self) -> dict[tuple[str, int, str], list[FailedTry]]:
        if self._recorded is None:
            self._recorded = defaultdict(list)
            while (entry := self._storage.read(RETRY, self._next)) is not None:
                self._next += 1
                read = RetryEntry.model_validate_json(entry.answer)
                self._recorded[read.part, read.number, read.kind] += read.failed
        return self._recorded
