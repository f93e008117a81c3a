"""How rows become MongoDB documents; bytes too long for one document lie in chunks that are written before it."""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from bson import Int64
from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from gepa_client.errors import JournalError, NumberTaken, StoreDamaged
from gepa_client.journal.entries import (
    STOP,
    AttemptFinished,
    AttemptStarted,
    CandidateRecord,
    Entry,
    Row,
    StoredRun,
    moment_of,
    moment_text,
)
from gepa_client.journal.mongo_server import Document, MongoServer
from gepa_client.journal.stored_fields import (
    FIRST,
    JSON_FIELDS,
    LARGEST_INTEGER,
    TIME_FIELDS,
    ChainEnd,
    Record,
    candidate_bytes,
    checksum,
    decoding,
    finished_record,
    link,
    pack,
    plain,
    run_of,
    started_record,
    to_json,
    unpack,
)

INLINE = 1 << 20
CHUNK = 4 << 20
DUPLICATE = 11000
ENTRY_FIELDS = ("part", "number", "kind", "digest", "about")
SAME = {
    "attempts": ("owner", "kind", "endpoint", "instance"),
    "entries": ("owner", "kind", "digest", "about", "packed", "size", "data"),
}
"""The fields that distinguish a repeated write of this process from another driver's document."""


ESCAPED = re.compile(r"[%.$\0]")
"""Characters that a key of a document may not have, or that paths in queries give a meaning."""

OTHERWISE = "%json"
"""The key of a value that BSON lacks, as JSON in ASCII; no other key begins like it, as `%` itself is escaped."""


def run_document(record: Record) -> Document:
    """Return a run's fields as MongoDB holds them: JSON as documents, times as dates."""
    return {name: _stored_field(name, value) for name, value in record.items()}


def run_of_document(document: Document) -> StoredRun:
    """Return the run of a document. Raises `StoreDamaged`."""
    with decoding(f"the record of run {document['_id']}"):
        return run_of({name: _read_field(name, value) for name, value in document.items()})


def _stored_field(name: str, value: Any) -> Any:
    if name in TIME_FIELDS and value is not None:
        return moment_of(value)
    return _stored_value(value) if name in JSON_FIELDS else value


def _read_field(name: str, value: Any) -> Any:
    if name in TIME_FIELDS and value is not None:
        return moment_text(moment_of(value) if isinstance(value, str) else value)  # some servers answer a date as text
    return _read_value(value) if name in JSON_FIELDS else value


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


class Blob:
    """Bytes ready to be stored: packed, and cut if they are long. `fields` go into the document they belong to.

    `data`: as they are stored, uncut.
    `readable`: JSON that is not long stays text, for people who look into the database.
    """

    def __init__(self, content: bytes, *, readable: bool = False) -> None:
        self.chunks: list[Document] = []
        as_text = readable and len(content) <= INLINE
        self.data, packed = (content, False) if as_text else pack(content)
        inline = content.decode() if as_text else self.data
        self.fields: Document = {"packed": packed, "size": len(self.data), "data": inline, "blob": None, "chunks": 0}
        if len(self.data) > INLINE:
            name = uuid.uuid4().hex  # of its own for each write: what an accident leaves half-written is never read
            cuts = range(0, len(self.data), CHUNK)
            self.chunks = [{"_id": f"{name}/{i}", "data": self.data[at : at + CHUNK]} for i, at in enumerate(cuts)]
            self.fields |= {"data": None, "blob": name, "chunks": len(self.chunks)}

    def write_chunks(self, server: MongoServer) -> None:
        """Write what the document will refer to."""
        for chunk in self.chunks:
            try:
                server["chunks"].insert_one(chunk)
            except DuplicateKeyError:
                continue  # written before the connection was lost


def content(server: MongoServer, document: Document) -> bytes:
    """Return the bytes that `Blob` was made from. Raises `StoreDamaged` if chunks are gone."""
    return unpack(stored(server, document), document["packed"])


def stored(server: MongoServer, document: Document) -> bytes:
    """Return the bytes as they are stored. Raises `StoreDamaged` if chunks are gone."""
    data: bytes | str | None = document["data"]
    if data is None:
        chunks = [server["chunks"].find_one({"_id": name}) for name in chunk_names(document)]
        data = b"".join(chunk["data"] for chunk in chunks if chunk is not None)
    if isinstance(data, str):
        data = data.encode()
    if len(data) != document["size"]:
        raise StoreDamaged(f"the store {server.url} is damaged: parts of {document['_id']} are gone")
    return data


def chunk_names(document: Document) -> list[str]:
    """Return the ids of a document's chunks."""
    return [f"{document['blob']}/{index}" for index in range(document["chunks"])]


class PreparedDocuments:
    """Rows ready to be written under a run's `key`; safe to write again after the connection was lost."""

    def __init__(self, rows: Iterable[Row], owner: str, key: str) -> None:
        self._key = key
        self._sent: list[Document] = []
        self._ended: list[AttemptFinished] = []
        self._blobs: list[Blob] = []
        self._entries: list[Document] = []
        self._checksums: dict[str, bytes] = {}
        self._kept: list[Document] = []
        for row in rows:
            match row:
                case AttemptStarted():
                    name = self._name(row.part, row.number, row.attempt)
                    self._sent.append({"_id": name, "run": key, **started_record(row, owner)})
                case AttemptFinished():
                    self._ended.append(row)
                case CandidateRecord():
                    fields = self._blob(candidate_bytes(row), readable=True).fields
                    self._kept.append({"_id": self._name(row.index), "run": key, "number": row.index, **fields})
                case Entry():
                    blob = self._blob(row.answer)
                    name = self._name(row.part, row.number)
                    values = (row.part, row.number, row.kind, row.digest, plain(row.about))
                    self._checksums[name] = checksum(*values, packed=blob.fields["packed"], data=blob.data)
                    named = dict(zip(ENTRY_FIELDS, values, strict=True))
                    self._entries.append({"_id": name, "run": key, **named, "owner": owner, **blob.fields})

    def write(self, server: MongoServer, run_id: str, tail: ChainEnd) -> ChainEnd:
        """Write attempts that begin, then entries with what was paid for them, then the rest.

        An entry that can be read is whole, and an answer is never lost while its attempt is known to have ended.
        `tail`: the end of the writer's chain; returns the new one.
        """
        _insert(server, "attempts", self._sent, run_id)
        for blob in self._blobs:
            blob.write_chunks(server)
        tail = self._insert_entries(server, run_id, tail)
        self._end(server, run_id)
        for document in self._kept:
            before = server["candidates"].find_one({"_id": document["_id"]})
            server["candidates"].replace_one({"_id": document["_id"]}, document, upsert=True)
            if before is not None and before["chunks"] and before["blob"] != document["blob"]:
                server["chunks"].delete_many({"_id": {"$in": chunk_names(before)}})
        return tail

    def _insert_entries(self, server: MongoServer, run_id: str, tail: ChainEnd) -> ChainEnd:
        """Insert the entries behind the end of their writer's chain, those that an earlier try left out."""
        left = self._entries
        while left:
            ends = list(self._chain(left, tail))
            there = _insert_once(server, "entries", left, run_id)
            if there is None:
                return ends[-1]
            inserted, found = there
            tail = max([tail, *ends[:inserted], *map(_tail_of, found.values())], key=lambda end: end.length)
            left = [document for document in left[inserted:] if document["_id"] not in found]
        return tail

    def _chain(self, documents: Iterable[Document], tail: ChainEnd) -> Iterator[ChainEnd]:
        """Give each its place behind `tail`; yields the end of the chain after each."""
        for document in documents:
            seal = self._checksums[document["_id"]]
            if document["kind"] == STOP:  # it may be deleted
                document |= {"seq": None, "link": link(FIRST, seal).hex()}
            else:
                tail = tail.grown(seal)
                document |= {"seq": tail.length - 1, "link": tail.link.hex()}
            yield tail

    def _name(self, *numbers: str | int) -> str:
        return "/".join(map(str, (self._key, *numbers)))

    def _blob(self, data: bytes, *, readable: bool = False) -> Blob:
        blob = Blob(data, readable=readable)
        self._blobs.append(blob)
        return blob

    def _end(self, server: MongoServer, run_id: str) -> None:
        if not self._ended:
            return
        names = [self._name(ended.part, ended.number, ended.attempt) for ended in self._ended]
        updates = [
            UpdateOne({"_id": name}, {"$set": finished_record(ended)})
            for name, ended in zip(names, self._ended, strict=True)
        ]
        if server["attempts"].bulk_write(updates, ordered=False).matched_count == len(updates):
            return
        known = {found["_id"] for found in server["attempts"].find({"_id": {"$in": names}}, {"_id": 1})}
        for name, ended in zip(names, self._ended, strict=True):
            if name not in known:
                raise JournalError(f"run {run_id}: attempt {ended.part} {ended.number} {ended.attempt} was never sent")


def _tail_of(document: Document) -> ChainEnd:
    """Return the end of its writer's chain when this entry was written."""
    seq = document.get("seq")
    return ChainEnd() if seq is None else ChainEnd(seq + 1, bytes.fromhex(document["link"]))


def _insert(server: MongoServer, collection: str, documents: Sequence[Document], run_id: str) -> None:
    """Insert in order, over what an earlier try of the same owner left. Raises `NumberTaken` at a foreign document."""
    left = list(documents)
    while left and (there := _insert_once(server, collection, left, run_id)) is not None:
        inserted, found = there
        left = [document for document in left[inserted:] if document["_id"] not in found]


def _insert_once(
    server: MongoServer, collection: str, documents: Sequence[Document], run_id: str
) -> tuple[int, dict[str, Document]] | None:
    """Insert in order; None once all are in.

    Else how many came in before one that was there, and which of the rest were there. Raises `NumberTaken` where one of
    them is not ours.
    """
    try:
        server[collection].insert_many(documents)
    except BulkWriteError as error:
        failed = error.details.get("writeErrors") or [{}]
        if failed[0].get("code") != DUPLICATE:
            raise
        inserted: int = failed[0]["index"]
    else:
        return None
    left = documents[inserted:]
    there = {found["_id"]: found for found in server[collection].find({"_id": {"$in": _ids(left)}})}
    for document in left:
        found = there.get(document["_id"], document)
        if any(found[name] != document[name] for name in SAME[collection]):
            where = document["_id"].partition("/")[2].replace("/", " ")
            raise NumberTaken(f"run {run_id}: another process has written {where} of {collection}") from None
    return inserted, there


def _ids(documents: Iterable[Document]) -> list[str]:
    return [document["_id"] for document in documents]
