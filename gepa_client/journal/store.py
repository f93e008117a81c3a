"""The interface of a store of journals, implemented for SQLite and MongoDB and tested by one suite."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from gepa_client.journal.entries import CandidateRecord, Claim, Entry, Row, Spending, StoredAttempt, StoredRun
from gepa_client.journal.records import ChainLink

SCHEMA_VERSION = 3
"""Version 1 had no chains: its entries are read without a check. Version 2 named `requested_action` otherwise."""

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
        """Return one run."""
        ...

    def runs(self) -> list[StoredRun]:
        """Return all runs, the newest first."""
        ...

    def update(self, run_id: str, changes: Mapping[str, Any], *, owner: str | None = None) -> None:
        """Replace fields of a run, named as in `StoredRun` (not `id`, `claim`); `updated` follows by itself.

        With `owner`: only while that owner drives it, else raises `ClaimLost`.
        """
        ...

    def claim(self, run_id: str, seen: Claim, owner: str, driver: str) -> bool:
        """Make `owner` the run's driver, atomically, if its claim is still `seen`; return whether it did."""
        ...

    def beat(self, run_id: str, owner: str, changes: Mapping[str, Any]) -> str | None:
        """Write a heartbeat and the fields to replace; return the run's `requested_action`. Raises `ClaimLost`."""
        ...

    def release(self, run_id: str, owner: str) -> None:
        """Release a claim; does nothing if another owner has it."""
        ...

    def write(self, run_id: str, owner: str, rows: Sequence[Row]) -> None:
        """Add rows, all or none as far as the store can; safe to repeat by the same owner after `StoreUnavailable`.

        `AttemptFinished` completes its `AttemptStarted`; `CandidateRecord` replaces an earlier one of its index.
        Raises `NumberTaken` if an entry of the same number exists, or an attempt of the same number and attempt
        (another process drives the run), `ClaimLost` if `owner` does not drive the run (the owner "" may write while
        the run has no driver), and `JournalError` for an `AttemptFinished` without its `AttemptStarted`.
        """
        ...

    def entries(
        self, run_id: str, part: str, start: int = 0, limit: int = PAGE, *, largest: int | None = None
    ) -> list[Entry]:
        """Return entries of a part, numbered from `start` on: at most `limit`, about `PAGE_BYTES` of answers.

        Empty only if there are no more. Answers of more than `largest` bytes are left out (`Entry.omitted`).
        """
        ...

    def links(self, run_id: str, part: str, start: int = 0, limit: int = PAGE) -> list[ChainLink]:
        """Return the same entries' places in the chains of their writers."""
        ...

    def chains(self, run_id: str) -> dict[str, int]:
        """Return how many entries each writer has chained, by owner; the store may hold a few more."""
        ...

    def entries_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[Entry]:
        """Return the entries of a part that have one of these numbers, in order."""
        ...

    def parts(self, run_id: str) -> dict[str, int]:
        """Return every part that has entries, with their number."""
        ...

    def drop(self, run_id: str, part: str, kind: str) -> None:
        """Delete the entries of a kind from a part: a stop that is over."""
        ...

    def attempts(self, run_id: str, part: str, start: int = 0) -> list[StoredAttempt]:
        """Return the attempts for numbers from `start` on, by number and attempt."""
        ...

    def failed_attempts(self, run_id: str) -> list[tuple[str, int, int]]:
        """`(part, number, examples)` of every attempt that may have a `program_error` or a `timeout` among its results.

        By part, number and attempt. An attempt's outcome is that of one of its examples, so one with several is listed
        unless it is `ok`. One without an outcome is listed too: a killed process may have written its entry alone.
        """
        ...

    def spending(self, run_id: str) -> list[Spending]:
        """Return the totals of all attempts, by kind and outcome."""
        ...

    def spending_at(self, run_id: str, kind: str) -> dict[str, list[Spending]]:
        """Return the totals of the attempts of one kind, by endpoint and outcome."""
        ...

    def candidates(self, run_id: str) -> list[CandidateRecord]:
        """Return the candidates in the pool, by index."""
        ...

    def rows(self, run_id: str) -> Iterator[Row]:
        """Yield all rows, as `create` accepts them: attempts with their ends, entries by part, candidates."""
        ...

    def close(self) -> None:
        """Close it; safe to call twice."""
        ...
