"""Records in a MongoDB database: a collection for each kind, whose documents hold the JSON of a record."""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bson.errors import InvalidDocument
from pymongo import ASCENDING, DESCENDING
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from gepa_client.errors import JournalError, StoreUnavailable
from gepa_client.journal.mongo_server import Document, MongoServer
from gepa_service.records.record import Record, now
from gepa_service.records.store import (
    LARGEST_PAGE,
    RecordChanged,
    RecordError,
    RecordExists,
    RecordsUnavailable,
    Where,
)

R = TypeVar("R", bound=Record)
T = TypeVar("T")
PATIENCE_S = 5.0
"""How long a server that does not answer is waited for: callers over HTTP wait as long."""


class MongoRecords:
    """Implements `RecordStore`. The same database may hold the runs.

    `write` in a document names the write that made it: a write whose response was lost is repeated, and recognized.

    Raises:
        RecordError: the URL is not usable. RecordsUnavailable: no server answers there.
    """

    def __init__(self, url: str, *, patience_s: float = PATIENCE_S) -> None:
        with _translated():
            self._server = MongoServer(url, patience_s=patience_s)
        self._indexed: set[str] = set()
        self._indexing = threading.Lock()
        self._closed = False

    def insert(self, record: Record) -> None:
        """Add a record. Raises `RecordExists`."""
        document = _document(record)

        def work(found: Collection[Document]) -> None:
            try:
                found.insert_one(dict(document))
            except DuplicateKeyError:
                there = found.find_one(_of(record), {"write": 1})
                if there is None or there["write"] != document["write"]:
                    raise RecordExists(f"there is a {record.kind} {record.id} already") from None

        self._tried(type(record), work)

    def get(self, type_: type[R], tenant: str, id_: str) -> R | None:
        """Return a record; None if there is none."""
        found = self._tried(type_, lambda records: records.find_one(_one(tenant, id_), {"body": 1}))
        return None if found is None else type_.model_validate_json(found["body"])

    def replace(self, record: R) -> R:
        """Write a record that was read before; return it with its new version. Raises `RecordChanged`."""
        written = record.model_copy(update={"version": record.version + 1, "updated": now()})
        document = _document(written)

        def work(found: Collection[Document]) -> None:
            if found.update_one({**_of(record), "version": record.version}, {"$set": document}).matched_count:
                return
            there = found.find_one(_of(record), {"write": 1})
            if there is None or there["write"] != document["write"]:
                raise RecordChanged(f"{record.kind} {record.id} has changed")

        self._tried(type(record), work)
        return written

    def delete(self, record: Record) -> None:
        """Delete a record that was read before. Raises `RecordChanged`."""
        tries = 0

        def work(found: Collection[Document]) -> None:
            nonlocal tries
            tries += 1
            if found.delete_one({**_of(record), "version": record.version}).deleted_count:
                return
            if tries == 1 or found.find_one(_of(record), {"_id": 1}) is not None:  # else an earlier try deleted it
                raise RecordChanged(f"{record.kind} {record.id} has changed")

        self._tried(type(record), work)

    def page(
        self,
        type_: type[R],
        tenant: str | None,
        where: Where | None = None,
        *,
        after: str | None = None,
        limit: int = LARGEST_PAGE,
        newest_first: bool = False,
    ) -> list[R]:
        """Return records in the order of their ids, those that follow the id `after`. `tenant`: None for all."""
        condition = _selected(type_, tenant, where)
        if after is not None:
            condition["id"] = {"$lt" if newest_first else "$gt": after}
        order = [("id", DESCENDING if newest_first else ASCENDING), ("tenant", ASCENDING)]
        if limit <= 0:  # MongoDB takes 0 as no limit
            return []

        def work(records: Collection[Document]) -> list[Document]:
            return list(records.find(condition, {"body": 1}).sort(order).limit(limit))

        return [type_.model_validate_json(found["body"]) for found in self._tried(type_, work)]

    def count(self, type_: type[Record], tenant: str | None, where: Where | None = None) -> int:
        """Return how many records a page without limit would hold."""
        condition = _selected(type_, tenant, where)
        return self._tried(type_, lambda records: records.count_documents(condition))

    def tenants_with(self, type_: type[Record], where: Where | None = None) -> dict[str, int]:
        """Return the number of such records by tenant, tenants without any left out."""
        condition = _selected(type_, None, where)
        steps: list[Document] = [{"$match": condition}, {"$group": {"_id": "$tenant", "count": {"$sum": 1}}}]
        found = self._tried(type_, lambda records: list(records.aggregate(steps)))
        return {each["_id"]: each["count"] for each in found}

    def close(self) -> None:
        """Close it; safe to call twice."""
        self._closed = True
        self._server.close()

    def _tried(self, type_: type[Record], work: Callable[[Collection[Document]], T]) -> T:
        """Do the work on the records of a type, again if the server was away meanwhile."""
        if self._closed:
            raise RecordsUnavailable(f"the records in {self._server.url} are closed")
        collection = self._server[f"record_{type_.kind}"]
        with _translated():
            if type_.kind not in self._indexed:
                with self._indexing:
                    self._server.tried(lambda: _index(collection, type_))
                    self._indexed.add(type_.kind)
            return self._server.tried(lambda: work(collection))


def _index(collection: Collection[Document], type_: type[Record]) -> None:
    collection.create_index([("tenant", ASCENDING), ("id", ASCENDING)], unique=True)
    collection.create_index([("id", ASCENDING), ("tenant", ASCENDING)])
    for name in type_.indexed:
        collection.create_index([(f"fields.{name}", ASCENDING), ("tenant", ASCENDING), ("id", ASCENDING)])
        collection.create_index([(f"fields.{name}", ASCENDING), ("id", ASCENDING), ("tenant", ASCENDING)])


def _one(tenant: str, id_: str) -> Document:
    """Return the condition of one record.

    `$in`: equality finds no id of digits alone on servers that keep documents in SQLite, as those of tests do.
    """
    return {"tenant": tenant, "id": {"$in": [id_]}}


def _of(record: Record) -> Document:
    return _one(record.tenant, record.id)


def _document(record: Record) -> Document:
    fields = {name: getattr(record, name) for name in record.indexed}
    made = {
        "tenant": record.tenant,
        "id": record.id,
        "version": record.version,
        "write": uuid.uuid4().hex,
        "fields": fields,
    }
    return made | {"body": record.model_dump_json()}


def _selected(type_: type[Record], tenant: str | None, where: Where | None) -> dict[str, Any]:
    """Return the condition of a query. Raises `ValueError` for a field that is not indexed."""
    condition: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
    for name, wanted in (where or {}).items():
        if name not in type_.indexed:
            raise ValueError(f"{type_.kind} is not indexed by {name}")
        accepted = [wanted] if wanted is None or isinstance(wanted, str) else list(wanted)
        condition[f"fields.{name}"] = {"$in": accepted}
    return condition


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except StoreUnavailable as error:
        raise RecordsUnavailable(str(error)) from error
    except JournalError as error:
        raise RecordError(str(error)) from error
    except InvalidDocument as error:
        raise RecordError(f"the record cannot be stored: {error}") from error
