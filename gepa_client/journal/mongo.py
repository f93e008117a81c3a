"""A `Database` in MongoDB: its URL's secrets stay in this module, and it survives restarts of the server.

Rows are documents; bytes too long for one document lie in chunks that are written before it.
"""

import contextlib
import hashlib
import json
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from bson import Int64
from bson.errors import BSONError
from pymongo import MongoClient, ReadPreference, UpdateOne
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DuplicateKeyError,
    ExecutionTimeout,
    InvalidName,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
)

from evolverpc_common.installation import installed_version
from gepa_client.errors import JournalError, StoreDamaged, StoreUnavailable, StoreVersionDiffers
from gepa_client.journal.database import (
    SCHEMA_VERSION,
    Compared,
    KeyTaken,
    Order,
    Record,
    Rows,
    Table,
    Where,
    other_version,
)
from gepa_client.journal.entries import moment_of, moment_text
from gepa_client.journal.stored_fields import LARGEST_INTEGER, decoding, plain, to_json

INLINE = 1 << 20
CHUNK = 4 << 20
DUPLICATE = 11000
OPERATORS = {"<": "$lt", ">": "$gt", ">=": "$gte", "!=": "$ne"}

Document = dict[str, Any]

ESCAPED = re.compile(r"[%.$\0]")
"""Characters that a key of a document may not have, or that paths in queries give a meaning."""

OTHERWISE = "%json"
"""The key of a value that BSON lacks, as JSON in ASCII; no other key begins like it, as `%` itself is escaped."""

DATABASE = "evolverpc"
REACH_MS = 5_000
ANSWER_MS = 20_000
PATIENCE_S = 20.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
SHOWN_OPTIONS = frozenset({"authsource", "directconnection", "replicaset", "ssl", "tls", "tlscafile", "w"})
T = TypeVar("T")


class MongoRows:
    """`Rows` for one piece of work, that is repeated over what it has done if the connection is lost.

    A document's `_id` is the value of its key, or the joined values. One with a long blob names its chunks by their
    content, so that a repeated write finds its own, and what an accident leaves half-written is never read.
    """

    def __init__(self, database: Database[Document], url: str) -> None:
        self._database = database
        self._url = url

    def insert(self, table: Table, rows: Sequence[Record]) -> None:
        if not rows:
            return
        documents = [self._document(table, row) for row in rows]
        try:
            if len(documents) == 1:
                self._database[table.name].insert_one(documents[0])  # which refuses one that is too long
            else:
                self._database[table.name].insert_many(documents)
        except DuplicateKeyError as error:
            raise KeyTaken(f"{table.name}: {documents[0]['_id']} is there already") from error
        except BulkWriteError as error:
            failed = error.details.get("writeErrors") or [{}]
            if failed[0].get("code") != DUPLICATE:
                raise
            raise KeyTaken(f"{table.name}: {documents[failed[0]['index']]['_id']} is there already") from error

    def update(self, table: Table, where: Where, changes: Record, *, counter: str | None = None) -> bool:
        change: Document = {"$set": {name: _stored(table, name, value) for name, value in changes.items()}}
        if counter:
            change["$inc"] = {counter: 1}
        return self._database[table.name].update_one(_condition(table, where), change).matched_count > 0

    def update_each(self, table: Table, rows: Sequence[Record]) -> bool:
        updates = [
            UpdateOne(
                {"_id": _id(table, row)},
                {"$set": {name: _stored(table, name, row[name]) for name in row if name not in table.key}},
            )
            for row in rows
        ]
        if not updates:
            return True
        return self._database[table.name].bulk_write(updates, ordered=False).matched_count == len(updates)

    def find(
        self,
        table: Table,
        where: Where,
        order: Order = (),
        *,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Record]:
        if limit is not None and limit <= 0:  # MongoDB takes 0 as no limit
            return
        fields = None if columns is None else [_field(table, name) for name in columns]
        if fields is not None and table.blob in fields:
            fields += ["size", "blob", "chunks"]
        sort = [(_field(table, name.lstrip("-")), -1 if name[0] == "-" else 1) for name in order] or None
        with self._database[table.name].find(_condition(table, where), fields, sort=sort, limit=limit or 0) as found:
            for document in found:
                yield self._read(table, document)

    def sums(self, table: Table, where: Where, by: Sequence[str], of: Sequence[str] = ()) -> list[Record]:
        collection, condition = self._database[table.name], _condition(table, where)
        if len(by) > 1:  # by one column at a time, as not every server groups by several
            first, *others = by
            found = collection.distinct(first, condition)
            return [
                {first: value, **each}
                for value in found
                for each in self.sums(table, {**where, first: value}, others, of)
            ]
        group: Document = {"_id": f"${by[0]}" if by else None, "count": {"$sum": 1}}
        group |= {name: {"$sum": f"${name}"} for name in of}
        summed = collection.aggregate([{"$match": condition}, {"$group": group}])
        return [
            dict.fromkeys(by, each["_id"]) | {"count": each["count"]} | {name: each[name] or 0 for name in of}
            for each in summed
        ]

    def delete(self, table: Table, where: Where) -> int:
        collection, condition = self._database[table.name], _condition(table, where)
        if table.blob is None:
            return collection.delete_many(condition).deleted_count
        count = 0
        while (deleted := collection.find_one_and_delete(condition)) is not None:
            self._drop_chunks(deleted)
            count += 1
        return count

    def _document(self, table: Table, row: Record) -> Document:
        """Return a row's document, after what it refers to is written."""
        document = {_field(table, name): _stored(table, name, row.get(name)) for name in table.columns}
        document["_id"] = _id(table, row)
        if table.blob is None:
            return document
        data = row[table.blob]
        document |= {"blob": None, "chunks": 0}
        if row["size"] > INLINE:
            name = f"{document['_id']}/{hashlib.blake2b(data, digest_size=16).hexdigest()}"
            cuts = range(0, len(data), CHUNK)
            document |= {table.blob: None, "blob": name, "chunks": len(cuts)}
            for chunk, cut in zip(_chunks(document), cuts, strict=True):
                with contextlib.suppress(DuplicateKeyError):  # written before the connection was lost
                    self._database["chunks"].insert_one({"_id": chunk, "data": data[cut : cut + CHUNK]})
        return document

    def _read(self, table: Table, document: Document) -> Record:
        with decoding(document["_id"]):
            row = {name: _value(table, name, value) for name, value in document.items()}
        if len(table.key) == 1:
            row[table.key[0]] = row["_id"]
        if table.blob not in row:
            return row
        if row["blob"] is not None:
            found = [self._database["chunks"].find_one({"_id": name}) for name in _chunks(document)]
            row[table.blob] = b"".join(chunk["data"] for chunk in found if chunk is not None)
        if len(row[table.blob] or b"") != row["size"]:
            raise StoreDamaged(f"the store {self._url} is damaged: parts of {document['_id']} are gone")
        return row

    def _drop_chunks(self, document: Document) -> None:
        if document["chunks"]:
            self._database["chunks"].delete_many({"_id": {"$in": _chunks(document)}})


def _chunks(document: Document) -> list[str]:
    return [f"{document['blob']}/{index}" for index in range(document["chunks"])]


def _id(table: Table, row: Mapping[str, Any]) -> Any:
    if len(table.key) == 1:
        return row[table.key[0]]
    return "/".join(quote(str(value), safe="") for value in table.place(row))


def _field(table: Table, name: str) -> str:
    return "_id" if table.key == (name,) else name


def _condition(table: Table, where: Where) -> Document:
    condition: Document = {}
    for name, wanted in where.items():
        operator, value = wanted if isinstance(wanted, Compared) else (None, wanted)
        if operator is not None:
            condition[_field(table, name)] = {OPERATORS[operator]: value}
        else:
            condition[_field(table, name)] = {"$in": value} if isinstance(value, list) else value
    if len(table.key) > 1 and all(isinstance(where.get(name), str | int) for name in table.key):
        condition = {name: value for name, value in condition.items() if name not in table.key}
        condition["_id"] = _id(table, where)
    return condition


def _stored(table: Table, name: str, value: Any) -> Any:
    if name in table.times and value is not None:
        return moment_of(value)
    return _stored_value(value) if name in table.json else value


def _value(table: Table, name: str, value: Any) -> Any:
    if name in table.times and value is not None:
        return moment_text(moment_of(value) if isinstance(value, str) else value)  # some servers answer a date as text
    return _read_value(value) if name in table.json else value


def _stored_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(name): _stored_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_stored_value(part) for part in value]
    if (isinstance(value, int) and abs(value) > LARGEST_INTEGER) or (isinstance(value, str) and plain(value) != value):
        return {OTHERWISE: to_json(value)}
    return value


def _read_value(value: Any) -> Any:
    if isinstance(value, dict):
        if OTHERWISE in value:
            return json.loads(value[OTHERWISE])
        return {unquote(name): _read_value(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_read_value(part) for part in value]
    return int(value) if isinstance(value, Int64) else value


def _key(name: str) -> str:
    return ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", plain(name))


class MongoDatabase:
    """The database of a URL's path, `evolverpc` if it names none.

    `patience_s`: how long a server that does not answer is waited for. Raises `StoreUnavailable` in about 5 s where no
    server answers at first, `StoreVersionDiffers`, or `JournalError` for an unusable URL or insufficient rights.
    """

    def __init__(self, url: str, *, patience_s: float = PATIENCE_S) -> None:
        self.url = without_secrets(url)
        self._patience_s = patience_s
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # pymongo only warns of options it then ignores
                self._client: MongoClient[Document] = MongoClient(
                    url,
                    serverSelectionTimeoutMS=min(REACH_MS, int(1000 * patience_s)),
                    connectTimeoutMS=REACH_MS,
                    socketTimeoutMS=ANSWER_MS,
                    retryWrites=False,  # a repeat is distinguished from a foreign write by its owner
                    journal=True,  # an answer GEPA has seen survives the server's own end
                )
            default: Database[Document] = self._client.get_default_database(DATABASE)
        except (ConfigurationError, InvalidURI, InvalidName, ValueError, UserWarning) as error:
            raise JournalError(f"{self.url} is not a usable MongoDB URL{_harmless(str(error), url)}") from None
        self._database = default.with_options(read_preference=ReadPreference.PRIMARY)
        try:
            self._tried(lambda: self._client.admin.command("ping"), patience_s=0)
            self._tried(self._check_version)
        except BaseException:
            self._client.close()
            raise

    def declare(self, tables: Iterable[Table]) -> None:
        def create() -> None:
            for table in tables:
                collection = self._database[table.name]
                if len(table.key) > 1:
                    collection.create_index([(name, 1) for name in table.key], unique=True)
                for columns in table.indexes:
                    collection.create_index([(name, 1) for name in columns])

        self._tried(create)

    def read(self, work: Callable[[Rows], T]) -> T:
        return self.write(work)

    def write(self, work: Callable[[Rows], T]) -> T:
        rows = MongoRows(self._database, self.url)
        return self._tried(lambda: work(rows))

    def _tried(self, work: Callable[[], T], *, patience_s: float | None = None) -> T:
        """Do the work, again after each time the server was away; so it must be safe to repeat."""
        give_up = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        pause = FIRST_PAUSE_S
        while True:
            try:
                return work()
            except (BSONError, OverflowError) as error:  # a document of 16 MiB, a number of more than 64 bits
                raise JournalError(f"this cannot be stored in {self.url}: {error}") from error
            except PyMongoError as error:
                if not _passes(error):
                    raise JournalError(f"the store {self.url}: {_words(error)}") from error
                if time.monotonic() >= give_up:
                    raise StoreUnavailable(
                        f"the store {self.url} does not answer ({_words(error)}); start it, or check the URL and resume"
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def purge(self) -> None:
        """Do nothing: MongoDB itself uses the space again."""

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._client.close()

    def _check_version(self) -> None:
        schema = self._database["store"]
        found = schema.find_one({"_id": "schema"})
        if found is None:
            own = {"version": SCHEMA_VERSION, "evolverpc": installed_version()}
            schema.update_one({"_id": "schema"}, {"$setOnInsert": own}, upsert=True)
        elif found["version"] != SCHEMA_VERSION:
            raise StoreVersionDiffers(other_version(self.url, found["version"], found.get("evolverpc")))


def without_secrets(url: str) -> str:
    """Return the URL without user, password, and the options that may hold secrets."""
    scheme, _, rest = url.partition("://")
    # A password may hold any character by mistake; hosts cannot hold an @.
    hosts_and_path, _, options = rest.rpartition("@")[2].partition("?")
    shown = [option for option in options.split("&") if option.partition("=")[0].lower() in SHOWN_OPTIONS]
    return f"{scheme}://{hosts_and_path}{'?' if shown else ''}{'&'.join(shown)}"


def _harmless(message: str, url: str) -> str:
    """Return a parser's message about a URL, unless it quotes what may be a secret."""
    before, _, after = url.partition("://")[2].rpartition("@")
    options = [option.partition("=") for option in after.partition("?")[2].split("&")]
    secrets = [*re.split("[:/@]", before), *(value for name, _, value in options if name.lower() not in SHOWN_OPTIONS)]
    return "" if any(secret and secret in message for secret in secrets) else f": {message}"


def _passes(error: PyMongoError) -> bool:
    """Whether a server that was away, changed its primary or shut down explains it."""
    if isinstance(error, BulkWriteError):
        return not error.details.get("writeErrors")
    return isinstance(error, ConnectionFailure | ExecutionTimeout | WriteConcernError)


def _words(error: PyMongoError) -> str:
    """Return the message without what pymongo adds for its own developers."""
    if isinstance(error, OperationFailure) and isinstance(error.details, dict) and "errmsg" in error.details:
        return str(error.details["errmsg"])
    return str(error).partition(", Timeout:")[0].partition(" (configured timeouts:")[0]
