"""A store of journals above any database, opening the store of a path or URL, and finding a run in it."""

import contextlib
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import orjson

from evolverpc_common.display_text import listed
from gepa_client.errors import ClaimLost, JournalError, NoSuchRun, RequestExists, RunExists, StoreUnavailable
from gepa_client.journal.database import Compared, Database, Record, Rows, Table, Where, inserted
from gepa_client.journal.entries import (
    CANDIDATE,
    EVENTS,
    STEERED,
    Attempt,
    CandidateRecord,
    Claim,
    Entry,
    RequestOutcome,
    Row,
    Spending,
    SteeringRequest,
    StoredRun,
    now,
)
from gepa_client.journal.stored_fields import (
    ATTEMPTS,
    ENTRIES,
    ENTRY_FIELDS,
    OF_RUNS,
    PAGE,
    REQUESTS,
    RUNS,
    SUMMED,
    WRITERS,
    PreparedRows,
    Seal,
    attempt_of,
    changes_record,
    checksum,
    decoding,
    one_page,
    plain,
    request_of,
    request_record,
    run_of,
    run_record,
    spending_of,
    unpack,
)

DEFAULT_STORE = "runs/evolverpc.db"
STORE_VARIABLE = "GEPA_STORE"
LAST = "last"
SHOWN = 5
BY_ATTEMPT = ("number", "attempt")
KEY_BITS = 62
"""Of the key of a run's rows, a random number."""

WITHOUT_ANSWER = (*ENTRY_FIELDS, "packed", "size")
ENTRY_COLUMNS = (*WITHOUT_ANSWER, "answer")

T = TypeVar("T")


class Store:
    """Runs and their journals in a database; `HttpStore` has the same methods behind the API of a service.

    Safe to use from several threads, and the same store from several processes.

    A run's rows lie under a key of its own, which no other run ever has: those of a run whose creation was cut off are
    never seen.

    Every method may raise `StoreUnavailable` (full, locked, unreachable: trying later can help), and those that name a
    run `NoSuchRun`.
    """

    def __init__(self, database: Database) -> None:
        self.url = database.url
        """As `open_store` takes it, without user and password."""
        self._database = database
        self._keys: dict[str, int] = {}
        self._writing = threading.Lock()
        try:
            database.declare((RUNS, *OF_RUNS))
        except BaseException:
            database.close()
            raise

    def create(self, run: StoredRun, rows: Iterable[Row] = ()) -> None:
        """Add a run with the rows it begins with, all or nothing: a fork's, an import's. Raises `RunExists`."""
        prepared = PreparedRows(rows, run.claim.owner or "", whole=True)
        key = secrets.randbits(KEY_BITS)

        def work(found: Rows, looks: bool) -> None:
            there = next(found.find(RUNS, {"id": run.id}, columns=["key"]), None)
            if there is not None and there["key"] != key:
                raise RunExists(f"{self.url} holds a run {run.id} already")
            if there is None:
                prepared.write(found, key, run.id, looks=looks)
                found.insert(RUNS, [{"key": key, **run_record(run)}])

        try:
            inserted(self._database, work)
        except StoreUnavailable:
            raise  # it may be there after all
        except JournalError:
            self._forget(key)  # what MongoDB has of it
            raise

    def run(self, run_id: str) -> StoredRun:
        """Return one run."""
        return run_of(self._database.read(lambda rows: self._found(rows, run_id)))

    def runs(self) -> list[StoredRun]:
        """Return all runs, the newest first."""
        found = self._database.read(lambda rows: list(rows.find(RUNS, {}, ("-created", "-id"))))
        return [run_of(each) for each in found]

    def update(self, run_id: str, changes: Mapping[str, Any], *, owner: str | None = None) -> None:
        """Replace fields of a run, named as in `StoredRun` (not `id`, `claim`); `updated` follows by itself.

        With `owner`: only while that owner drives it, else raises `ClaimLost`.
        """
        record = changes_record(changes)
        where = {"id": run_id} if owner is None else {"id": run_id, "owner": owner or None}

        def work(rows: Rows) -> None:
            if not rows.update(RUNS, where, record):
                self._lost(rows, run_id)

        self._database.write(work)

    def claim(self, run_id: str, seen: Claim, owner: str, driver: str) -> bool:
        """Make `owner` the run's driver, atomically, if its claim is still `seen`; return whether it did."""
        ours = {"owner": owner, "beat": seen.beat + 1}

        def work(rows: Rows) -> bool:
            where = {"id": run_id, "owner": seen.owner, "beat": seen.beat}
            if rows.update(RUNS, where, {**ours, "driver": plain(driver), "updated": now()}):
                return True
            found = self._found(rows, run_id)  # the answer to the same change may have been lost
            return all(found[name] == value for name, value in ours.items())

        return self._database.write(work)

    def beat(self, run_id: str, owner: str, changes: Mapping[str, Any]) -> str | None:
        """Write a heartbeat and the fields to replace; return what a user stops the run by. Raises `ClaimLost`."""
        record = changes_record(changes)

        def work(rows: Rows) -> str | None:
            if not rows.update(RUNS, {"id": run_id, "owner": owner}, record, counter="beat"):
                self._lost(rows, run_id)
            waiting = rows.find(REQUESTS, {"run": self._key(rows, run_id), "outcome": None}, ("place", "id"))
            return next(filter(None, (request_of(found).stops for found in waiting)), None)

        return self._database.write(work)

    def release(self, run_id: str, owner: str) -> None:
        """Release a claim; does nothing if another owner has it."""
        free = {"owner": None, "driver": None, "updated": now()}

        def work(rows: Rows) -> None:
            if not rows.update(RUNS, {"id": run_id, "owner": owner}, free, counter="beat"):
                self._key(rows, run_id)

        self._database.write(work)

    def write(self, run_id: str, owner: str, rows: Sequence[Row]) -> None:
        """Add rows, all or none as far as the store can; safe to repeat by the same owner after `StoreUnavailable`.

        An `Attempt` that ended completes the one that began.
        Raises `NumberTaken` if an entry of the same number exists, or an attempt of the same number and attempt
        (another process drives the run), `ClaimLost` if `owner` does not drive the run (the owner "" may write while
        the run has no driver), and `JournalError` for an end of an attempt that never began.
        """
        prepared = PreparedRows(rows, owner)

        def work(found: Rows, looks: bool) -> None:
            run = next(found.find(RUNS, {"id": run_id, "owner": owner or None}, columns=["key"]), None)
            if run is None:
                self._lost(found, run_id)
            prepared.write(found, run["key"], run_id, looks=looks)

        with self._writing:  # one write at a time takes the next places
            inserted(self._database, work)

    def entries(
        self, run_id: str, part: str, start: int = 0, limit: int = PAGE, *, largest: int | None = None
    ) -> list[Entry]:
        """Return entries of a part, numbered from `start` on: at most `limit`, about `PAGE_BYTES` of answers.

        Empty only if there are no more. Answers of more than `largest` bytes are left out (`Entry.omitted`).
        """
        where = {"part": part, "number": Compared(">=", start)}
        columns = ENTRY_COLUMNS if largest != 0 else WITHOUT_ANSWER
        return self._page(run_id, where, limit, lambda found: _entry(found, largest), columns)

    def seals(self, run_id: str, part: str, start: int = 0, limit: int = PAGE) -> list[Seal]:
        """Return whether the same entries are what was written, and their places."""
        return self._page(run_id, {"part": part, "number": Compared(">=", start)}, limit, _seal, None)

    def writers(self, run_id: str) -> dict[str, int]:
        """Return how many entries each writer has written, by owner; the store may hold a few more."""
        return {found["owner"]: found["written"] for found in self._of_run(run_id, WRITERS, {})}

    def entries_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[Entry]:
        """Return the entries of a part that have one of these numbers, in order: a page of them, empty if none has."""
        return self._page(run_id, {"part": part, "number": list(numbers)}, None, _entry)

    def parts(self, run_id: str) -> dict[str, int]:
        """Return every part that has entries, with their number."""
        found = self._sums(run_id, ENTRIES, {}, ["part"])
        return {each["part"]: each["count"] for each in found}

    def drop(self, run_id: str, part: str, kind: str) -> None:
        """Delete the entries of a kind from a part: a stop that is over."""
        self._database.write(
            lambda rows: rows.delete(ENTRIES, {"run": self._key(rows, run_id), "part": part, "kind": kind})
        )

    def attempts(self, run_id: str, part: str, start: int = 0) -> list[Attempt]:
        """Return the attempts for numbers from `start` on, by number and attempt."""
        return list(self._attempts(run_id, part, start))

    def unsuccessful_attempts(self, run_id: str) -> list[Attempt]:
        """Return the attempts whose outcome is not `ok`, by part, number and attempt.

        An attempt's outcome is that of one of its examples, the first that is not `ok`. One without an outcome is
        listed too: a killed process may have written its entry alone.
        """
        found = self._of_run(run_id, ATTEMPTS, {"outcome": Compared("!=", "ok")}, ("part", *BY_ATTEMPT))
        return [attempt_of(each) for each in found]

    def spending(self, run_id: str) -> list[Spending]:
        """Return the totals of all attempts, by kind and outcome."""
        found = self._sums(run_id, ATTEMPTS, {}, ["kind", "outcome"], SUMMED)
        return [spending_of(each["kind"], each["outcome"], each) for each in found]

    def spending_at(self, run_id: str, kind: str) -> dict[str, list[Spending]]:
        """Return the totals of the attempts of one kind, by endpoint and outcome."""
        found: dict[str, list[Spending]] = {}
        for each in self._sums(run_id, ATTEMPTS, {"kind": kind}, ["endpoint", "outcome"], SUMMED):
            found.setdefault(each["endpoint"], []).append(spending_of(kind, each["outcome"], each))
        return found

    def candidates(self, run_id: str) -> list[CandidateRecord]:
        """Return the candidates in the pool, by index, as the decisions of the search state them."""
        found = self._of_run(run_id, ENTRIES, {"part": EVENTS, "kind": [CANDIDATE, STEERED]}, ("number",))
        with decoding("a candidate"):
            made = [(each["kind"], orjson.loads(unpack(each["answer"], each["packed"]))) for each in found]
            drops = {
                event["dropped"]: event["number"] for kind, event in made if kind == STEERED and "dropped" in event
            }
            return [CandidateRecord.of(each, drops.get(each["index"])) for kind, each in made if kind == CANDIDATE]

    def finished_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[Attempt]:
        """Return the attempts for these numbers that have ended, by number and attempt."""
        where = {"part": part, "number": list(numbers), "outcome": Compared("!=", None)}
        return [attempt_of(found) for found in self._of_run(run_id, ATTEMPTS, where, BY_ATTEMPT)]

    def all_attempts(self, run_id: str) -> Iterator[Attempt]:
        """Yield the attempts of all parts."""
        for part in self.attempt_parts(run_id):
            yield from self._attempts(run_id, part, 0)

    def _attempts(self, run_id: str, part: str, start: int) -> Iterator[Attempt]:
        while page := self.attempt_page(run_id, part, start):
            yield from page
            start = page[-1].number + 1

    def attempt_parts(self, run_id: str) -> list[str]:
        """Return every part that has attempts."""
        return [each["part"] for each in self._sums(run_id, ATTEMPTS, {}, ["part"])]

    def attempt_page(self, run_id: str, part: str, start: int = 0) -> list[Attempt]:
        """Return the attempts for the first numbers from `start` on, all of each; empty only if there are no more."""

        def work(rows: Rows) -> list[Record]:
            place = {"run": self._key(rows, run_id), "part": part}
            found = list(rows.find(ATTEMPTS, {**place, "number": Compared(">=", start)}, BY_ATTEMPT, limit=PAGE))
            if len(found) < PAGE:
                return found
            last = found[-1]["number"]
            whole = [each for each in found if each["number"] < last]
            return whole or list(rows.find(ATTEMPTS, {**place, "number": last}, BY_ATTEMPT))

        return [attempt_of(found) for found in self._database.read(work)]

    def add_request(self, run_id: str, request: SteeringRequest) -> None:
        """Queue a request; does nothing if one of its id and its action is there.

        Raises `RequestExists` if one of its id has another action.
        """
        record = request_record(request)

        def work(rows: Rows, _: bool) -> None:
            place = {"run": self._key(rows, run_id)}
            found = next(rows.find(REQUESTS, {**place, "id": record["id"]}), None)
            if found is None:
                earlier = rows.sums(REQUESTS, place, [])
                rows.insert(REQUESTS, [{**place, "place": earlier[0]["count"] if earlier else 0, **record}])
            elif found["action"] != record["action"]:
                raise RequestExists(f"run {run_id} has another request {request.id}")

        inserted(self._database, work)

    def requests(self, run_id: str, *, waiting: bool = False) -> list[SteeringRequest]:
        """Return the requests of a run in the order of their arrival; `waiting`: those without an outcome."""
        where = {"outcome": None} if waiting else {}
        return [request_of(found) for found in self._of_run(run_id, REQUESTS, where, ("place", "id"))]

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
        changes = {"outcome": outcome, "number": number, "reason": plain(reason)}

        def work(rows: Rows) -> None:
            rows.update(REQUESTS, {"run": self._key(rows, run_id), "id": request_id, "outcome": None}, changes)

        self._database.write(work)

    def delete(self, run_id: str) -> None:
        """Delete a run without a driver, and all that is recorded of it."""
        key = self._database.read(lambda rows: self._found(rows, run_id, "key")["key"])
        self._database.write(lambda rows: rows.delete(RUNS, {"id": run_id}))
        self._keys.pop(run_id, None)
        self._forget(key)

    def purge(self) -> None:
        """Remove from the files what was deleted, as far as no other process reads them now."""
        self._database.purge()

    def close(self) -> None:
        """Close it; safe to call twice."""
        self._database.close()

    def _found(self, rows: Rows, run_id: str, *columns: str) -> Record:
        """Return a run, or these columns of it. Raises `NoSuchRun`."""
        for found in rows.find(RUNS, {"id": run_id}, columns=columns or None):
            return found
        raise NoSuchRun(f"{self.url} holds no run {run_id}")

    def _key(self, rows: Rows, run_id: str) -> int:
        if run_id not in self._keys:
            self._keys[run_id] = self._found(rows, run_id, "key")["key"]
        return self._keys[run_id]

    def _lost(self, rows: Rows, run_id: str) -> NoReturn:
        driver = self._found(rows, run_id, "driver")["driver"]
        raise ClaimLost(f"run {run_id} is driven by {driver or 'no process'} now")

    def _of_run(self, run_id: str, table: Table, where: Where, order: Sequence[str] = ()) -> list[Record]:
        def work(rows: Rows) -> list[Record]:
            return list(rows.find(table, {"run": self._key(rows, run_id), **where}, order))

        return self._database.read(work)

    def _page(
        self,
        run_id: str,
        where: Where,
        limit: int | None,
        read: Callable[[Record], tuple[T, int]],
        columns: Sequence[str] | None = ENTRY_COLUMNS,
    ) -> list[T]:
        """Return what `read` makes of entries, until the bytes it counts fill a page."""

        def work(rows: Rows) -> list[T]:
            place = {"run": self._key(rows, run_id), **where}
            found = rows.find(ENTRIES, place, ("number",), columns=columns, limit=limit)
            return [one for one, _ in one_page(map(read, found), lambda each: each[1])]

        return self._database.read(work)

    def _sums(self, run_id: str, table: Table, where: Where, by: Sequence[str], of: Sequence[str] = ()) -> list[Record]:
        """Return sums of a run's rows, sorted by the columns `by`, None first."""
        found = self._database.read(lambda rows: rows.sums(table, {"run": self._key(rows, run_id), **where}, by, of))
        return sorted(found, key=lambda each: [(each[name] is not None, each[name] or "") for name in by])

    def _forget(self, key: int) -> None:
        """Delete the rows of a run that was deleted, or not created after all."""

        def work(rows: Rows) -> None:
            for table in OF_RUNS:
                rows.delete(table, {"run": key})

        self._database.write(work)


def _entry(found: Record, largest: int | None = None) -> tuple[Entry, int]:
    """Return an entry, and the bytes of its answer."""
    fields = {name: found[name] for name in ENTRY_FIELDS}
    if largest == 0:
        return Entry(**fields, answer=b"", omitted=found["size"]), 0
    answer = unpack(found["answer"], found["packed"])
    if largest is not None and len(answer) > largest:
        return Entry(**fields, answer=b"", omitted=len(answer)), 0
    return Entry(**fields, answer=answer), len(answer)


def _seal(found: Record) -> tuple[Seal, int]:
    sound = False
    with contextlib.suppress(TypeError, ValueError):  # values of other types than were written
        sound = found["checksum"] == checksum(found)
    answer = found["answer"]
    return Seal(found["number"], found["owner"], found["seq"], sound), len(answer) if isinstance(answer, bytes) else 0


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
            from gepa_client.journal.mongo import MongoDatabase  # an extra, and slow to import
        except ModuleNotFoundError as error:
            if error.name not in {"pymongo", "bson"}:
                raise
            raise JournalError(
                "a MongoDB store needs pymongo: run pip install '.[mongo]' in the folder of evolverpc"
            ) from error
        return Store(MongoDatabase(url_or_path))
    if separator and scheme in {"http", "https", "http+unix"}:
        from gepa_client.journal.http_store import HttpStore

        return HttpStore(url_or_path)
    if separator:
        raise JournalError(f"no store is known for {scheme}:// ; give a path for SQLite or a mongodb:// URL")
    if looks_like_a_url(url_or_path):
        raise JournalError(f"{url_or_path} is no file's name and no URL either: did you mean mongodb://HOST?")
    if not url_or_path:
        raise JournalError("the store has no name; give a path for SQLite or a mongodb:// URL")
    from gepa_client.journal.sqlite import SqliteDatabase

    return Store(SqliteDatabase(url_or_path))


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
        raise NoSuchRun(f"{text!r} may be any of {listed([run.id for run in found], SHOWN)}; give more of the id")
    raise NoSuchRun(f"the store {store.url} holds no run {text!r}; it has {listed([run.id for run in runs], SHOWN)}")
