"""The interface of a store of journals, opening the store of a path or URL, and finding a run in it."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from gepa_client.errors import JournalError, NoSuchRun
from gepa_client.journal.entries import (
    AttemptFinished,
    CandidateRecord,
    Claim,
    Entry,
    RequestOutcome,
    Row,
    Spending,
    SteeringRequest,
    StoredAttempt,
    StoredRun,
)
from gepa_client.journal.stored_fields import PAGE, ChainLink

DEFAULT_STORE = "runs/evolverpc.db"
STORE_VARIABLE = "GEPA_STORE"
LAST = "last"
SHOWN = 5


class Store(Protocol):
    """Runs and their journals, in SQLite or MongoDB, or behind the API of a service.

    Safe to use from several threads, and the same store from several processes.

    Every method may raise `StoreUnavailable` (full, locked, unreachable: trying later can help), and those that name a
    run `NoSuchRun`. Opening one of another version raises `StoreVersionDiffers`.
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
        """Return the entries of a part that have one of these numbers, in order: a page of them, empty if none has."""
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

    def candidates(self, run_id: str, start: int = 0) -> list[CandidateRecord]:
        """Return the candidates in the pool from the index `start` on, by index."""
        ...

    def finished_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[AttemptFinished]:
        """Return the ends of the attempts for these numbers, by number and attempt; those that have ended."""
        ...

    def attempt_rows(self, run_id: str) -> Iterator[Row]:
        """Yield the rows of all attempts, each with its end, as `create` accepts them."""
        ...

    def add_request(self, run_id: str, request: SteeringRequest) -> None:
        """Queue a request; does nothing if one of its id and its action is there.

        Raises `RequestExists` if one of its id has another action.
        """
        ...

    def requests(self, run_id: str, *, waiting: bool = False) -> list[SteeringRequest]:
        """Return the requests of a run in the order of their arrival; `waiting`: those without an outcome."""
        ...

    def answer_request(
        self,
        run_id: str,
        request_id: str,
        outcome: RequestOutcome,
        *,
        number: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Write the outcome of a request that waits; does nothing if it has one, or is unknown."""
        ...

    def close(self) -> None:
        """Close it; safe to call twice."""
        ...


def default_store(given: str | None = None) -> str:
    """Return the given store, else `GEPA_STORE`, else a file in the folder `runs` of the current folder."""
    return given or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE


def named_store(store: str) -> str | None:
    """Return the store as a printed command names it; None for the default store."""
    return None if store == default_store() else store


def open_store(url_or_path: str) -> Store:
    """Open the store of a `mongodb://` or `mongodb+srv://` URL, or of a SQLite file, which is created if absent.

    The URL of a service (`https://`, `http://`, `http+unix://`) opens the run of the job whose token it is given.

    Raises `StoreVersionDiffers`, `StoreUnavailable`, or `JournalError` for what is no store.
    """
    scheme, separator, _ = url_or_path.partition("://")
    if separator and scheme in {"mongodb", "mongodb+srv"}:
        try:
            from gepa_client.journal.mongo import MongoStore  # an extra, and slow to import
        except ModuleNotFoundError as error:
            if error.name not in {"pymongo", "bson"}:
                raise
            raise JournalError(
                "a MongoDB store needs pymongo: run pip install '.[mongo]' in the folder of evolverpc"
            ) from error
        return MongoStore(url_or_path)
    if separator and scheme in {"http", "https", "http+unix"}:
        from gepa_client.journal.http_store import HttpStore

        return HttpStore(url_or_path)
    if separator:
        raise JournalError(f"no store is known for {scheme}:// ; give a path for SQLite or a mongodb:// URL")
    if looks_like_a_url(url_or_path):
        raise JournalError(f"{url_or_path} is no file's name and no URL either: did you mean mongodb://HOST?")
    if not url_or_path:
        raise JournalError("the store has no name; give a path for SQLite or a mongodb:// URL")
    from gepa_client.journal.sqlite import SqliteStore

    return SqliteStore(url_or_path)


def looks_like_a_url(text: str) -> bool:
    """Whether a URL is meant rather than a file, well written or not, as in `mongodb//host`."""
    return "://" in text or re.match(r"mongodb(\+srv)?(:|//)", text) is not None


def find_run(store: Store, text: str) -> StoredRun:
    """Return the run with this id, else the `last` one created, else the only one whose id or name fits.

    An id that begins with the text and an equal name come before an id or a name that contains it, in any case of
    letters. Raises `NoSuchRun`, naming the matches if there are several.
    """
    try:
        return store.run(text)
    except NoSuchRun:
        runs = store.runs()
    if not runs:
        raise NoSuchRun(f"the store {store.url} holds no runs")
    if text == LAST:
        return runs[0]
    found = [run for run in runs if text and (run.id.startswith(text) or run.name == text)]
    if text and not found:
        found = [run for run in runs if text.lower() in f"{run.id}\n{run.name or ''}".lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise NoSuchRun(f"{text!r} may be any of {_listed(found)}; give more of the id")
    raise NoSuchRun(f"the store {store.url} holds no run {text!r}; it has {_listed(runs)}")


def _listed(runs: list[StoredRun]) -> str:
    shown = ", ".join(run.id for run in runs[:SHOWN])
    return f"{shown} and {len(runs) - SHOWN} more" if len(runs) > SHOWN else shown
