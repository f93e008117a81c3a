"""Journals in a MongoDB database."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from bson import ObjectId
from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from gepa_client.errors import ClaimLost, JournalError, NoSuchRun, RequestExists, RunExists, StoreUnavailable
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
    now,
)
from gepa_client.journal.mongo_rows import (
    PreparedDocuments,
    chunk_names,
    content,
    run_document,
    run_of_document,
    stored,
)
from gepa_client.journal.mongo_server import PATIENCE_S, Document, MongoServer
from gepa_client.journal.stored_fields import (
    PAGE,
    ChainEnd,
    ChainLink,
    attempt_of,
    candidate_of,
    changes_record,
    checksum,
    decoding,
    one_page,
    plain,
    request_of,
    request_record,
    rows_of_attempt,
    run_record,
    spending_of,
)

T = TypeVar("T")
UNIQUE = {
    "entries": ("run", "part", "number"),
    "attempts": ("run", "part", "number", "attempt"),
    "candidates": ("run", "number"),
    "requests": ("run", "id"),
}
BY_ATTEMPT = (("number", 1), ("attempt", 1))
SUMMED = ("examples", "unpriced", "silent", "cost_usd", "input_tokens", "output_tokens", "seconds")
"""What is summed of attempts; `silent` is `unpriced` of those with results and without usage."""


class MongoStore:
    """A `Store` in a database; its `url` is shown without user and password.

    A run's rows lie under a key of its own, which no other run ever has: rows of a run whose creation was cut off are
    never seen. `patience_s`: how long a server that does not answer is waited for. Raises what `MongoServer` does.
    """

    def __init__(self, url: str, *, patience_s: float = PATIENCE_S) -> None:
        self._server = MongoServer(url, patience_s=patience_s)
        self.url = self._server.url
        self._keys: dict[str, str] = {}
        self._tails: dict[tuple[str, str], ChainEnd] = {}
        self._writing = threading.Lock()
        self._runs = self._server["runs"]
        self._server.tried(self._index)

    def create(self, run: StoredRun, rows: Iterable[Row] = ()) -> None:
        key = str(ObjectId())
        owner = run.claim.owner or ""
        prepared = PreparedDocuments(rows, owner, key)
        document = {"_id": run.id, "key": key, **run_document(run_record(run))}

        def work() -> None:
            if self._runs.find_one({"_id": run.id}, {"_id": 1}) is None:
                tail = prepared.write(self._server, run.id, ChainEnd())
                if tail.length:
                    self._set_tail(key, owner, tail)
            try:
                self._runs.insert_one(document)
            except DuplicateKeyError:
                found = self._runs.find_one({"_id": run.id}, {"key": 1})
                if found is None or found["key"] != key:
                    raise RunExists(f"{self.url} holds a run {run.id} already") from None

        try:
            self._server.tried(work)
        except StoreUnavailable:
            raise  # it may be there after all
        except JournalError:
            self._forget(key)
            raise

    def run(self, run_id: str) -> StoredRun:
        return run_of_document(self._found(run_id))

    def runs(self) -> list[StoredRun]:
        return [run_of_document(document) for document in self._find("runs", {}, [("created", -1), ("key", -1)])]

    def update(self, run_id: str, changes: Mapping[str, Any], *, owner: str | None = None) -> None:
        record = run_document(changes_record(changes))
        where = {"_id": run_id} if owner is None else {"_id": run_id, "owner": owner or None}
        if not self._server.tried(lambda: self._runs.update_one(where, {"$set": record})).matched_count:
            raise self._claim_lost(run_id)

    def claim(self, run_id: str, seen: Claim, owner: str, driver: str) -> bool:
        where = {"_id": run_id, "owner": seen.owner, "beat": seen.beat}
        ours = {"owner": owner, "beat": seen.beat + 1}
        change = {"$set": {**ours, **run_document({"driver": plain(driver), "updated": now()})}}
        if self._server.tried(lambda: self._runs.update_one(where, change)).matched_count:
            return True
        found = self._found(run_id)  # the answer to the same change may have been lost
        return all(found[name] == value for name, value in ours.items())

    def beat(self, run_id: str, owner: str, changes: Mapping[str, Any]) -> str | None:
        where = {"_id": run_id, "owner": owner}
        change = {"$set": run_document(changes_record(changes)), "$inc": {"beat": 1}}
        found = self._server.tried(lambda: self._runs.find_one_and_update(where, change))
        if found is None:
            raise self._claim_lost(run_id)
        requested_action: str | None = changes.get("requested_action", found["requested_action"])
        return requested_action

    def release(self, run_id: str, owner: str) -> None:
        self._key(run_id)
        change = {"$set": run_document({"owner": None, "driver": None, "updated": now()}), "$inc": {"beat": 1}}
        self._server.tried(lambda: self._runs.update_one({"_id": run_id, "owner": owner}, change))

    def write(self, run_id: str, owner: str, rows: Sequence[Row]) -> None:
        key = self._key(run_id)
        prepared = PreparedDocuments(rows, owner, key)

        def work() -> None:
            if self._runs.find_one({"_id": run_id, "owner": owner or None}, {"_id": 1}) is None:
                raise self._claim_lost(run_id)
            before = self._tail(key, owner)
            after = prepared.write(self._server, run_id, before)
            if after != before:
                self._set_tail(key, owner, after)

        with self._writing:
            self._server.tried(work)

    def entries(
        self, run_id: str, part: str, start: int = 0, limit: int = PAGE, *, largest: int | None = None
    ) -> list[Entry]:
        def read(document: Document) -> tuple[Entry, int]:
            entry = self._entry(document, largest)
            return entry, len(entry.answer)

        return self._page(run_id, part, start, limit, read)

    def links(self, run_id: str, part: str, start: int = 0, limit: int = PAGE) -> list[ChainLink]:
        def read(document: Document) -> tuple[ChainLink, int]:
            fields = {name: document[name] for name in ("part", "number", "kind", "digest", "about")}
            data = stored(self._server, document)
            with decoding(document["_id"]):
                seal = checksum(**fields, packed=document["packed"], data=data)
                text = document.get("link")
                link = None if text is None else bytes.fromhex(text)
            return ChainLink(document["number"], document["owner"], document.get("seq"), link, seal), len(data)

        return self._page(run_id, part, start, limit, read)

    def chains(self, run_id: str) -> dict[str, int]:
        return {found["owner"]: found["length"] for found in self._find("chains", {"run": self._key(run_id)})}

    def entries_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[Entry]:
        where = {"run": self._key(run_id), "part": part, "number": {"$in": list(numbers)}}

        def work() -> list[Entry]:
            documents = self._server["entries"].find(where).sort("number", 1)
            return one_page((self._entry(document, None) for document in documents), lambda entry: len(entry.answer))

        return self._server.tried(work)

    def parts(self, run_id: str) -> dict[str, int]:
        group = {"$group": {"_id": "$part", "count": {"$sum": 1}}}
        steps: list[Document] = [{"$match": {"run": self._key(run_id)}}, group]
        found = self._server.tried(lambda: list(self._server["entries"].aggregate(steps)))
        return {each["_id"]: each["count"] for each in sorted(found, key=lambda each: str(each["_id"]))}

    def drop(self, run_id: str, part: str, kind: str) -> None:
        where = {"run": self._key(run_id), "part": part, "kind": kind}
        while (dropped := self._server.tried(lambda: self._server["entries"].find_one_and_delete(where))) is not None:
            self._drop_chunks([dropped])

    def attempts(self, run_id: str, part: str, start: int = 0) -> list[StoredAttempt]:
        where = {"run": self._key(run_id), "part": part, "number": {"$gte": start}}
        return [attempt_of(document) for document in self._find("attempts", where, BY_ATTEMPT)]

    def failed_attempts(self, run_id: str) -> list[tuple[str, int, int]]:
        several = {"examples": {"$gt": 1}, "outcome": {"$ne": "ok"}}
        where = {
            "run": self._key(run_id),
            "$or": [{"outcome": {"$in": [None, "program_error", "timeout"]}}, several],
        }
        fields = ("part", "number", "attempt", "examples")
        found = self._find("attempts", where, [("part", 1), *BY_ATTEMPT], fields=fields)
        return [
            (document["part"], document["number"], 1 if document["examples"] is None else document["examples"])
            for document in found
        ]

    def spending(self, run_id: str) -> list[Spending]:
        sums = self._sums({"run": self._key(run_id)}, "kind")
        return [spending_of(*group, sums[group]) for group in sorted(sums, key=_by_name_then_outcome)]

    def spending_at(self, run_id: str, kind: str) -> dict[str, list[Spending]]:
        sums = self._sums({"run": self._key(run_id), "kind": kind}, "endpoint")
        found: dict[str, list[Spending]] = {}
        for endpoint, outcome in sorted(sums, key=_by_name_then_outcome):
            found.setdefault(endpoint, []).append(spending_of(kind, outcome, sums[endpoint, outcome]))
        return found

    def finished_at(self, run_id: str, part: str, numbers: Sequence[int]) -> list[AttemptFinished]:
        where = {"run": self._key(run_id), "part": part, "number": {"$in": list(numbers)}}
        rows = (row for found in self._find("attempts", where, BY_ATTEMPT) for row in rows_of_attempt(found))
        return [row for row in rows if isinstance(row, AttemptFinished)]

    def candidates(self, run_id: str, start: int = 0) -> list[CandidateRecord]:
        where = {"run": self._key(run_id), "number": {"$gte": start}}

        def work() -> list[CandidateRecord]:
            found = self._server["candidates"].find(where).sort("number", 1)
            return [candidate_of(content(self._server, document)) for document in found]

        return self._server.tried(work)

    def attempt_rows(self, run_id: str) -> Iterator[Row]:
        key = self._key(run_id)
        for part in sorted(self._server.tried(lambda: self._server["attempts"].distinct("part", {"run": key}))):
            start: int | None = 0
            while start is not None:  # by number, as an attempt more or less must not move the pages
                place = {"run": key, "part": part}
                numbers = {"$gte": start, "$lt": start + PAGE}
                for document in self._find("attempts", {**place, "number": numbers}, BY_ATTEMPT):
                    yield from rows_of_attempt(document)
                later = self._find("attempts", {**place, "number": {"$gte": start + PAGE}}, BY_ATTEMPT, limit=1)
                start = later[0]["number"] if later else None

    def add_request(self, run_id: str, request: SteeringRequest) -> None:
        key, record = self._key(run_id), request_record(request)
        place = {"_id": f"{key}/{record['id']}", "run": key}

        def work() -> None:
            found = self._server["requests"].find_one({"_id": place["_id"]})
            if found is None:
                counted = self._runs.find_one_and_update(  # clocks of two users do not order their requests
                    {"_id": run_id}, {"$inc": {"requests": 1}}, return_document=ReturnDocument.AFTER
                )
                found = {**place, "place": counted["requests"] if counted is not None else 0, **record}
                with suppress(DuplicateKeyError):
                    self._server["requests"].insert_one(found)
                found = self._server["requests"].find_one({"_id": place["_id"]}) or found
            if found["action"] != record["action"]:
                raise RequestExists(f"run {run_id} has another request {request.id}")

        self._server.tried(work)

    def requests(self, run_id: str, *, waiting: bool = False) -> list[SteeringRequest]:
        where = {"run": self._key(run_id)} | ({"outcome": None} if waiting else {})
        return [request_of(found) for found in self._find("requests", where, [("place", 1)])]

    def answer_request(
        self,
        run_id: str,
        request_id: str,
        outcome: RequestOutcome,
        *,
        number: int | None = None,
        reason: str | None = None,
    ) -> None:
        where = {"_id": f"{self._key(run_id)}/{request_id}", "outcome": None}
        change = {"$set": {"outcome": outcome, "number": number, "reason": plain(reason)}}
        self._server.tried(lambda: self._server["requests"].update_one(where, change))

    def close(self) -> None:
        self._server.close()

    def _page(
        self, run_id: str, part: str, start: int, limit: int, read: Callable[[Document], tuple[T, int]]
    ) -> list[T]:
        """Return what `read` makes of a part's documents, until the bytes it counts fill a page."""
        where = {"run": self._key(run_id), "part": part, "number": {"$gte": start}}

        def work() -> list[T]:
            with self._server["entries"].find(where).sort("number", 1).limit(limit) as documents:
                return [one for one, _ in one_page(map(read, documents), lambda found: found[1])]

        return self._server.tried(work) if limit > 0 else []

    def _entry(self, document: Document, largest: int | None) -> Entry:
        fields = {name: document[name] for name in ("part", "number", "kind", "digest", "about")}
        if largest is not None and document["size"] > largest:
            return Entry(**fields, answer=b"", omitted=document["size"])
        answer = content(self._server, document)
        if largest is not None and len(answer) > largest:
            return Entry(**fields, answer=b"", omitted=len(answer))
        return Entry(**fields, answer=answer)

    def _tail(self, key: str, owner: str) -> ChainEnd:
        """Return the end of a writer's chain."""
        if (key, owner) not in self._tails:
            found = self._server["chains"].find_one({"_id": f"{key}/{owner}"})
            self._tails[key, owner] = (
                ChainEnd() if found is None else ChainEnd(found["length"], bytes.fromhex(found["link"]))
            )
        return self._tails[key, owner]

    def _set_tail(self, key: str, owner: str, tail: ChainEnd) -> None:
        """Write it after the entries: what is written beyond it may be incomplete."""
        place = {"_id": f"{key}/{owner}", "run": key, "owner": owner}
        self._server["chains"].replace_one(
            {"_id": place["_id"]}, {**place, "length": tail.length, "link": tail.link.hex()}, upsert=True
        )
        self._tails[key, owner] = tail

    def _found(self, run_id: str) -> Document:
        found = self._server.tried(lambda: self._runs.find_one({"_id": run_id}))
        if found is None:
            raise NoSuchRun(f"{self.url} holds no run {run_id}")
        return found

    def _key(self, run_id: str) -> str:
        if run_id not in self._keys:
            self._keys[run_id] = self._found(run_id)["key"]
        return self._keys[run_id]

    def _claim_lost(self, run_id: str) -> ClaimLost:
        return ClaimLost(f"run {run_id} is driven by {self._found(run_id)['driver'] or 'no process'} now")

    def _find(
        self,
        name: str,
        where: Document,
        order: Sequence[tuple[str, int]] = (),
        *,
        fields: Sequence[str] | None = None,
        limit: int = 0,
    ) -> list[Document]:
        return self._server.tried(lambda: list(self._server[name].find(where, fields, sort=order or None, limit=limit)))

    def _sums(self, where: Document, name: str) -> dict[tuple[str, str | None], list[float]]:
        """How many attempts there are, and the sums of their figures, by a field of theirs and their outcome."""
        sums: dict[tuple[str, str | None], list[float]] = {}
        for document in self._find("attempts", where, fields=(name, "outcome", "usage", *SUMMED)):
            silent = document["usage"] is None and document["examples"]
            figures = document | {"silent": document["unpriced"] if silent else 0}
            values = sums.setdefault((document[name], document["outcome"]), [0.0] * (1 + len(SUMMED)))
            for index, value in enumerate([1, *(figures[field] for field in SUMMED)]):
                values[index] += value or 0
        return sums

    def _forget(self, key: str) -> None:
        """Take the rows of a run away that was not created after all."""
        self._drop_chunks(self._find("entries", {"run": key}) + self._find("candidates", {"run": key}))
        self._server.tried(lambda: [self._server[name].delete_many({"run": key}) for name in (*UNIQUE, "chains")])

    def _drop_chunks(self, documents: Sequence[Document]) -> None:
        names = [name for document in documents for name in chunk_names(document)]
        if names:
            self._server.tried(lambda: self._server["chunks"].delete_many({"_id": {"$in": names}}))

    def _index(self) -> None:
        for name, fields in UNIQUE.items():
            self._server[name].create_index([(field, 1) for field in fields], unique=True)


def _by_name_then_outcome(group: tuple[str, str | None]) -> tuple[str, bool, str]:
    """As SQLite sorts."""
    name, outcome = group
    return name, outcome is not None, outcome or ""
