"""A journal over a real SQLite store, as a process that drives the run has it."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from evolverpc_common.redaction import Secrets
from gepa_client import RemoteAdapter
from gepa_client.errors import Interrupted
from gepa_client.journal.buffer import JournalBuffer, RecordedStorage
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import RequestKey, SpendingTotals, request_key
from gepa_client.journal.store import Store, open_store
from gepa_client.transport.event_loop import CancelToken
from protocol import DiscoverResult
from tests.gepa_client.journal.sample_runs import DRIVER, OWNER, RUN, run

Result = TypeVar("Result")


@contextmanager
def watched(path: Path) -> Iterator[Store]:
    """A store with the run of the tests in it."""
    with closing(open_store(str(path / "store.db"))) as store:
        store.create(run())
        yield store


@contextmanager
def recording(store: Store, *, owner: str = OWNER, secrets: Sequence[str] = ()) -> Iterator[Journal]:
    """The run's journal for a process that claims it; everything is written when it ends."""
    assert store.claim(RUN.id, store.run(RUN.id).claim, owner, DRIVER)
    cancel_token = CancelToken()
    buffer = JournalBuffer(store, RUN.id, owner, cancel_token.cancel)
    try:
        yield Journal(RUN.id, buffer, SpendingTotals(store.spending(RUN.id)), cancel_token, Secrets(secrets))
    finally:
        buffer.close()
        store.release(RUN.id, owner)


def replaying(store: Store, until: int | None = None) -> Journal:
    """The run's journal for a replay, which writes nothing."""
    return Journal(RUN.id, RecordedStorage(store, RUN.id), replays=True, until=until)


def discovery_of(url: str) -> DiscoverResult:
    """What the server at this address describes, as a replay has it from the record."""
    with RemoteAdapter(url) as adapter:
        return adapter.discovery


def asking(*words: str) -> list[RequestKey]:
    """Return a request key for each word."""
    return [request_key("completion", f"word {word}", word) for word in words]


def cut_after(journal: Journal, times: int) -> None:
    """Pause the run, with the reason `cut`, when its spending has changed so often."""
    left = iter(range(times, 0, -1))

    def count() -> None:
        if next(left, 0) == 1:
            journal.cancel_token.cancel(Interrupted("paused", "cut"))

    journal.spending.watch(count)


def cut_at_random(
    store: Store,
    url: str,
    seed: int,
    run: Callable[[RemoteAdapter], Result],
    restart: Callable[[int], None] = lambda _cuts: None,
) -> tuple[Result, int]:
    """Continue the run, cut at random each time, until it ends; return what it came to, and how often it was cut."""
    chance, cuts = random.Random(seed), 0
    while True:
        with recording(store) as journal, RemoteAdapter(url, journal=journal) as adapter:
            cut_after(journal, chance.randint(3, 40))
            try:
                return run(adapter), cuts
            except Interrupted as interrupted:
                assert interrupted.reason == "cut"
                cuts += 1
                restart(cuts)
