"""What a store of journals must be able to do; SQLite and MongoDB do it, and one suite tests both."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from gepa_client.journal.chain import Link
from gepa_client.journal.entries import Attempt, Claim, Entry, Kept, Row, Spending, StoredRun

SCHEMA_VERSION = 2
"""Version 1 had no chains: what it wrote is read without being checked."""

PAGE = 512
PAGE_BYTES = 8 << 20
"""A page ends at either."""


class Store(Protocol):
    """Runs and their journals. Safe to use from several threads, and the same store from several processes.

    Every method may raise `StoreUnavailable` (full, locked, unreachable: trying later can help), and those that name a
    run `NoSuchRun`. Opening one raises `StoreTooNew` for a newer schema.
    """

    url: str
    """As `open_store` takes it."""

    def create(self, run: StoredRun, rows: Iterable[Row] = ()) -> None:
        """Add a run with the rows it begins with, all or nothing: a fork's, an import's. Raises `RunExists`."""
        ...

    def run(self, run_id: str) -> StoredRun:
        """One run."""
        ...

    def runs(self) -> list[StoredRun]:
        """All runs, the one created last first."""
        ...

    def update(self, run_id: str, changes: Mapping[str, Any], *, owner: str | None = None) -> None:
        """Replace fields of a run, named as in `StoredRun` (not `id`, `claim`); `updated` follows by itself.

        With `owner`: only while that owner drives it, else raises `ClaimLost`.
        """
        ...

    def claim(self, run_id: str, seen: Claim, owner: str, driver: str) -> bool:
        """Make `owner` the run's driver, at one stroke, if its claim still is `seen`; returns whether it did."""
        ...

    def beat(self, run_id: str, owner: str, changes: Mapping[str, Any]) -> str | None:
        """A sign of life with the fields to replace; returns the run's `wish`. Raises `ClaimLost`."""
        ...

    def release(self, run_id: str, owner: str) -> None:
        """Let go of a claim; does nothing where it is somebody else's."""
        ...

    def write(self, run_id: str, owner: str, rows: Sequence[Row]) -> None:
        """Add rows, all or none as far as the store can; safe to repeat by the same owner after `StoreUnavailable`.

        `Ended` completes its `Sent`; `Kept` replaces an earlier one of its index. Raises `NumberTaken` where an entry
        of the same number exists, or an attempt of the same number and attempt: somebody else drives the run. Raises
        `ClaimLost` where `owner` does not drive the run; the owner "" may write while nobody does. Raises
        `JournalError` for an `Ended` whose attempt was never `Sent`.
        """
        ...

    def entries(
        self, run_id: str, part: str, start: int = 0, limit: int = PAGE, *, largest: int | None = None
    ) -> list[Entry]:
        """Entries of a part with numbers from `start` on, in order: at most `limit`, about `PAGE_BYTES` of answers.

        Empty only where there are no more. Answers of more than `largest` bytes are left out (`Entry.omitted`).
        """
        ...

    def links(self, run_id: str, part: str, start: int = 0, limit: int = PAGE) -> list[Link]:
        """The same entries' places in the chains of their writers."""
        ...

    def chains(self, run_id: str) -> dict[str, int]:
        """How many entries each writer has chained, by owner; the store may hold a few more."""
        ...

    def entries_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[Entry]:
        """The entries of a part that have one of these numbers, in order."""
        ...

    def parts(self, run_id: str) -> dict[str, int]:
        """Every part that has entries, with how many."""
        ...

    def drop(self, run_id: str, part: str, kind: str) -> None:
        """Take the entries of a kind out of a part: a stop that is over."""
        ...

    def attempts(self, run_id: str, part: str, start: int = 0) -> list[Attempt]:
        """Attempts for numbers from `start` on, by number and attempt."""
        ...

    def failed_attempts(self, run_id: str) -> list[tuple[str, int, int]]:
        """`(part, number, examples)` of every attempt that may have a `program_error` or a `timeout` among its results.

        By part, number and attempt. An attempt's outcome is that of one of its examples, so one with several is listed
        unless it is `ok`. One without an outcome is listed too: a killed process may have written its entry alone.
        """
        ...

    def spending(self, run_id: str) -> list[Spending]:
        """What all attempts came to, by kind and outcome."""
        ...

    def spending_at(self, run_id: str, kind: str) -> dict[str, list[Spending]]:
        """What the attempts of one kind came to, by endpoint and outcome."""
        ...

    def candidates(self, run_id: str) -> list[Kept]:
        """Candidates in the pool, by index."""
        ...

    def rows(self, run_id: str) -> Iterator[Row]:
        """All rows, as `create` takes them: attempts with what they came to, entries by part, candidates."""
        ...

    def close(self) -> None:
        """Close it; safe to call twice."""
        ...
