"""Buffers between a journal and its store: entries are read ahead in pages, and written in groups by a thread."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from gepa_client.errors import (
    ClaimLost,
    Interrupted,
    NumberTaken,
    StoreDamaged,
    StoreUnavailable,
    summary,
)
from gepa_client.journal.entries import EVALUATE, Attempt, Entry, Row
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE

GROUP_S = 0.02
"""Seconds that rows may wait for others to share a commit, unless a caller waits for them."""

GROUP_ROWS = 256
LARGEST_HELD = 64 << 10
"""Bytes of an answer or an output that are held in memory once it is recorded; larger ones are read on demand."""


class JournalStorage:
    """What a journal reads from and writes to: as it is, it keeps nothing. May be used from any thread.

    `keeps`: whether what is recorded can be read again.
    """

    keeps = False

    def read(self, part: str, number: int) -> Entry | None:  # noqa: ARG002 - keeps nothing
        """Return the entry of this number, None if there is none; numbers are read in growing order.

        The result of an example of more than `LARGEST_HELD` bytes is left out (`Entry.omitted`).
        """
        return None

    def answer(self, part: str, number: int) -> bytes:
        """Return the whole answer of a recorded entry. Raises `StoreDamaged` if it is gone."""
        raise LookupError(f"nothing is recorded at {part} {number}")

    def has_more(self, part: str, number: int) -> bool:  # noqa: ARG002 - keeps nothing
        """Whether an earlier process recorded anything at this number or beyond it."""
        return False

    def attempts(self, part: str, number: int) -> list[Attempt]:  # noqa: ARG002 - keeps nothing
        """Return the attempts that an earlier process made for this number."""
        return []

    def write(self, *rows: Row) -> None:
        """Queue rows that belong together; they keep their order."""

    def written(self) -> "Future[None]":
        """Done when everything queued by now is in the store; fails with `Interrupted` if it cannot be written."""
        done: Future[None] = Future()
        done.set_result(None)
        return done


class RecordedStorage(JournalStorage):
    """The recorded journal of one run in a store; nothing is written, as in a replay."""

    keeps = True

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._pages: dict[str, _Pages] = {}
        self._reading = threading.Lock()

    def read(self, part: str, number: int) -> Entry | None:
        return self._part(part).read(number)

    def answer(self, part: str, number: int) -> bytes:
        return whole_answer(self._store, self._run_id, part, number)

    def has_more(self, part: str, number: int) -> bool:
        return self._part(part).has_more(number)

    def attempts(self, part: str, number: int) -> list[Attempt]:
        return self._part(part).attempts(number)

    def _part(self, part: str) -> "_Pages":
        with self._reading:
            if part not in self._pages:
                self._pages[part] = _Pages(self._store, self._run_id, part)
            return self._pages[part]


class JournalBuffer(RecordedStorage):
    """The journal of one run that this process drives, as `owner`.

    A failure to write ends it: `on_failure` gets the reason, and nothing more is accepted, as GEPA must not see what is
    not recorded.
    """

    def __init__(self, store: Store, run_id: str, owner: str, on_failure: Callable[[Interrupted], None]) -> None:
        super().__init__(store, run_id)
        self._owner = owner
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._rows: list[Row] = []
        self._waiting: list[Future[None]] = []
        self._failed: Interrupted | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._commit_groups, name="journal", daemon=True)
        self._thread.start()

    def write(self, *rows: Row) -> None:
        with self._changed:
            if self._failed is not None:
                raise self._failed.again()
            idle, full = not self._rows, len(self._rows) + len(rows) >= GROUP_ROWS
            self._rows += rows
            if idle or full:  # waking the thread takes the interpreter lock from the caller
                self._changed.notify()

    def written(self) -> "Future[None]":
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # a waiting caller may be cancelled; the commit they share may not
        with self._changed:
            if self._failed is not None:
                future.set_exception(self._failed.again())
            else:
                self._waiting.append(future)
                self._changed.notify()
        return future

    def close(self) -> None:
        """Write what is queued and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        with self._changed:
            self._failed = self._failed or Interrupted("failed", "the journal is closed")

    def _commit_groups(self) -> None:
        while (group := self._next_group()) is not None:
            rows, waiting = group
            try:
                if rows:
                    self._store.write(self._run_id, self._owner, rows)
            except BaseException as error:  # noqa: BLE001 - any error is passed to the waiting callers
                self._fail(error, waiting)
                return
            for future in waiting:
                future.set_result(None)

    def _next_group(self) -> tuple[list[Row], list["Future[None]"]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._rows or self._waiting or self._closing)
            until = time.monotonic() + GROUP_S
            while not (self._waiting or self._closing or len(self._rows) >= GROUP_ROWS):
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            if self._closing and not self._rows and not self._waiting:
                return None
            rows, self._rows = self._rows, []
            waiting, self._waiting = self._waiting, []
            return rows, waiting

    def _fail(self, error: BaseException, waiting: list["Future[None]"]) -> None:
        interrupted = _interruption(error)
        with self._changed:
            self._failed = interrupted
            waiting = waiting + self._waiting
            self._rows, self._waiting = [], []
        for future in waiting:
            future.set_exception(interrupted.again())
        self._on_failure(interrupted)


@dataclass
class _Pages:
    """One part of a journal, a page at a time; what this process writes lies beyond what it has read."""

    store: Store
    run_id: str
    part: str

    def __post_init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._read_to = 0  # everything below has been read
        self._at_end = False
        self._last = -1
        self._attempts: dict[int, list[Attempt]] | None = None

    def read(self, number: int) -> Entry | None:
        while not self._at_end and self._read_to <= number:
            self._turn(number)
        entry = self._entries.get(number)
        if entry is not None and entry.omitted and entry.kind != EVALUATE:
            return replace(entry, answer=whole_answer(self.store, self.run_id, self.part, number), omitted=0)
        return entry

    def has_more(self, number: int) -> bool:
        self.read(number)
        return not self._at_end or self._last >= number

    def attempts(self, number: int) -> list[Attempt]:
        if self._attempts is None:  # asked first at the number where the record ends: what follows is not much
            self._attempts = {}
            for attempt in self.store.attempts(self.run_id, self.part, number):
                self._attempts.setdefault(attempt.number, []).append(attempt)
        return self._attempts.get(number, [])

    def _turn(self, asked: int) -> None:
        page = self.store.entries(self.run_id, self.part, self._read_to, PAGE, largest=LARGEST_HELD)
        self._entries = {number: entry for number, entry in self._entries.items() if number >= asked}  # replayed
        for entry in page:
            self._entries[entry.number] = entry
            self._last = entry.number
        self._read_to = self._last + 1
        if len(page) < PAGE:  # decided now: later on there is what this process has written
            self._at_end = not self.store.entries(self.run_id, self.part, self._read_to, 1, largest=0)


def whole_answer(store: Store, run_id: str, part: str, number: int) -> bytes:
    """Return the answer of a recorded entry. Raises `StoreDamaged` if it is gone."""
    found = store.entries(run_id, part, number, 1)
    if not found or found[0].number != number:
        raise StoreDamaged(f"the store {store.url} is damaged: {part} {number} of run {run_id} is gone")
    return found[0].answer


def _interruption(error: BaseException) -> Interrupted:
    """Return what a failure to write means for the run."""
    if isinstance(error, NumberTaken | ClaimLost):
        return Interrupted("paused", f"another process drives this run now: {error}", infrastructure=True)
    reason = f"the journal cannot be written: {summary(error)}"
    if isinstance(error, StoreUnavailable):
        return Interrupted("paused", reason, infrastructure=True)
    return Interrupted("failed", reason)
