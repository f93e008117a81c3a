"""Checkpoints of a SQLite file in a thread of their own, so that no commit waits until the log's pages are moved."""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

COMMITS, LATEST_S = 25, 5.0
"""A checkpoint is made after so many commits, or so many seconds after the first of fewer."""

LONGEST_LOG = 4000
"""Pages of the log after which it begins anew; writers wait while it does."""

PAGES_WITHOUT = 50_000
"""Pages of the log after which a commit makes a checkpoint itself, because those of the thread fail."""

BUSY_S = 0.2
END_S = 10.0

_log = logging.getLogger(__name__)


class Checkpoints:
    """Makes checkpoints of the database at `path` after commits that are reported, until it is closed.

    The thread starts at the first commit. What was committed is in the log already: a checkpoint that fails loses
    nothing, and the next one repeats it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = threading.Condition()
        self._commits = 0
        self._restarts = False
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"checkpoints of {path.name}", daemon=True)

    def committed(self) -> None:
        """Report a commit; waits a moment if the log is about to begin anew. Calls come one after the other."""
        with self._changed:
            self._commits += 1
            if self._commits in (1, COMMITS):
                self._changed.notify_all()
            if self._thread.ident is None:
                self._thread.start()
            self._changed.wait_for(lambda: not self._restarts, BUSY_S)

    def close(self) -> None:
        """End the thread; safe to call twice."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(END_S)

    def _run(self) -> None:
        with contextlib.closing(sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)) as connection:
            for _ in self._turns():
                try:
                    self._checkpoint(connection)
                except sqlite3.Error as error:
                    _log.warning("no checkpoint of %s: %s", self._path, error)

    def _turns(self) -> Iterator[None]:
        """Wait for commits, again and again."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._commits or self._over)
                self._changed.wait_for(lambda: self._commits >= COMMITS or self._over, LATEST_S)
                if self._over:
                    return
                self._commits = 0
            yield

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Move pages beside the writers; if the log has grown long, move the few that are left and begin it anew."""
        _busy, pages, _moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages > LONGEST_LOG:
            self._hold_writers(True)
            try:
                connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            finally:
                self._hold_writers(False)

    def _hold_writers(self, restarts: bool) -> None:
        with self._changed:
            self._restarts = restarts
            self._changed.notify_all()
