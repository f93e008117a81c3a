"""The product as the benchmarks open it: the adapter over a fleet, and a run's journal in a store of its own."""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.payload import TOKEN
from gepa_client import RemoteAdapter
from gepa_client.errors import Interrupted
from gepa_client.journal.buffer import JournalBuffer
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.journal import Journal
from gepa_client.journal.store import open_store

OWNER = "benchmark"


@contextlib.contextmanager
def journal(store: Path) -> Iterator[Journal]:
    """Return the journal of a new run in a SQLite file, claimed as a run's driver claims it; written out at the end."""
    opened = open_store(str(store))
    failures: list[Interrupted] = []
    try:
        run = _new_run()
        opened.create(run)
        assert opened.claim(run.id, run.claim, OWNER, OWNER)
        buffer = JournalBuffer(opened, run.id, OWNER, failures.append)
        try:
            yield Journal(run.id, buffer)
        finally:
            buffer.close()
        assert not failures, failures
    finally:
        opened.close()


@contextlib.contextmanager
def adapter(urls: Sequence[str], store: Path | None) -> Iterator[RemoteAdapter]:
    """Return an adapter over these endpoints; `store`: the SQLite file of its journal, None for no record at all."""
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(journal(store)) if store is not None else None
        yield stack.enter_context(RemoteAdapter(list(urls), token=TOKEN, journal=kept))


def _new_run() -> StoredRun:
    # A server would answer calls of a run it knows without running anything: each has an id of its own.
    return StoredRun(id=uuid.uuid4().hex, status="running", config={})
