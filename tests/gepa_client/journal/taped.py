"""A journal over a real SQLite store, as a process that drives the run has it; and a store that counts or fails."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evolverpc_common.redaction import Secrets
from gepa_client.errors import Interrupted
from gepa_client.journal.buffer import StoredTape
from gepa_client.journal.entries import Row
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import Request, other_request
from gepa_client.journal.sqlite import SqliteStore
from gepa_client.journal.usage import Spend
from gepa_client.transport.cancel_token import Halt
from tests.gepa_client.journal.rows_of_runs import DRIVER, OWNER, RUN, run


class Watched(SqliteStore):
    """Counts commits; `before_write` may raise, or wait."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.commits: list[int] = []
        self.before_write: Callable[[Sequence[Row]], None] = lambda _: None

    def write(self, run_id: str, owner: str, rows: Sequence[Row]) -> None:
        self.before_write(rows)
        super().write(run_id, owner, rows)
        self.commits.append(len(rows))


@contextmanager
def watched(path: Path) -> Iterator[Watched]:
    """A store with the run of the tests in it."""
    store = Watched(path / "store.db")
    try:
        store.create(run())
        yield store
    finally:
        store.close()


@contextmanager
def recording(store: SqliteStore, *, owner: str = OWNER, secrets: Sequence[str] = ()) -> Iterator[Journal]:
    """The run's journal for a process that claims it; everything is written when it ends."""
    assert store.claim(RUN.id, store.run(RUN.id).claim, owner, DRIVER)
    halt = Halt()
    tape = StoredTape(store, RUN.id, owner, halt.pull)
    try:
        yield Journal(RUN.id, tape, Spend(store.spending(RUN.id)), halt, Secrets(secrets))
    finally:
        tape.close()
        store.release(RUN.id, owner)


def replaying(store: SqliteStore, until: int | None = None) -> Journal:
    """The run's journal for a replay, which writes nothing."""

    def failed(interrupted: Interrupted) -> None:
        raise AssertionError(interrupted.reason)

    tape = StoredTape(store, RUN.id, "", failed, reads_only=True)
    return Journal(RUN.id, tape, replays=True, until=until)


def asking(*words: str) -> list[Request]:
    """A request for each."""
    return [other_request("completion", f"say {word}", word) for word in words]
