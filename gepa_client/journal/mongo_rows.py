"""How rows become MongoDB documents; bytes too long for one document lie in chunks that are written before it."""

import uuid
from collections.abc import Iterable, Sequence

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from gepa_client.errors import JournalError, NumberTaken
from gepa_client.journal.entries import Ended, Entry, Kept, Row, Sent
from gepa_client.journal.mongo_server import Document, MongoServer
from gepa_client.journal.records import ended_record, kept_bytes, pack, plain, sent_record, unpack

INLINE = 1 << 20
CHUNK = 4 << 20
DUPLICATE = 11000
SAME = {
    "attempts": ("owner", "kind", "endpoint", "instance"),
    "entries": ("owner", "kind", "digest", "about", "packed", "size", "data"),
}
"""The fields by which a repeat of our own is told from another driver's document."""


class Blob:
    """Bytes ready to be stored: packed, and cut if they are long. `fields` go into the document they belong to.

    `readable`: JSON that is not long stays text, for people who look into the database.
    """

    def __init__(self, content: bytes, *, readable: bool = False) -> None:
        self.chunks: list[Document] = []
        if readable and len(content) <= INLINE:
            self.fields: Document = _fields(packed=False, size=len(content), data=content.decode())
            return
        data, packed = pack(content)
        self.fields = _fields(packed=packed, size=len(data), data=data)
        if len(data) > INLINE:
            name = uuid.uuid4().hex  # of its own for each write: what an accident leaves half-written is never read
            cuts = range(0, len(data), CHUNK)
            self.chunks = [{"_id": f"{name}/{i}", "data": data[at : at + CHUNK]} for i, at in enumerate(cuts)]
            self.fields |= {"data": None, "blob": name, "chunks": len(self.chunks)}

    def write_chunks(self, server: MongoServer) -> None:
        """Write what the document will refer to."""
        for chunk in self.chunks:
            try:
                server["chunks"].insert_one(chunk)
            except DuplicateKeyError:
                continue  # written before the connection was lost


def _fields(*, packed: bool, size: int, data: bytes | str) -> Document:
    return {"packed": packed, "size": size, "data": data, "blob": None, "chunks": 0}


def content(server: MongoServer, document: Document) -> bytes:
    """The bytes that `Blob` was made from. Raises `JournalError` where chunks are gone."""
    data = document["data"]
    if data is None:
        chunks = [server["chunks"].find_one({"_id": name}) for name in chunk_names(document)]
        data = b"".join(chunk["data"] for chunk in chunks if chunk is not None)
    if isinstance(data, str):
        data = data.encode()
    if len(data) != document["size"]:
        raise JournalError(f"the store {server.url} is damaged: parts of {document['_id']} are gone")
    return unpack(data, document["packed"])


def chunk_names(document: Document) -> list[str]:
    """The ids of a document's chunks."""
    return [f"{document['blob']}/{index}" for index in range(document["chunks"])]


class Prepared:
    """Rows ready to be written under a run's `key`; safe to write again after the connection was lost."""

    def __init__(self, rows: Iterable[Row], owner: str, key: str) -> None:
        self._key = key
        self._sent: list[Document] = []
        self._ended: list[Ended] = []
        self._blobs: list[Blob] = []
        self._entries: list[Document] = []
        self._kept: list[Document] = []
        for row in rows:
            match row:
                case Sent():
                    name = self._name(row.part, row.number, row.attempt)
                    self._sent.append({"_id": name, "run": key, **sent_record(row, owner)})
                case Ended():
                    self._ended.append(row)
                case Kept():
                    fields = self._blob(kept_bytes(row), readable=True)
                    self._kept.append({"_id": self._name(row.index), "run": key, "number": row.index, **fields})
                case Entry():
                    told = {"kind": row.kind, "digest": row.digest, "about": plain(row.about), "owner": owner}
                    place = {
                        "_id": self._name(row.part, row.number),
                        "run": key,
                        "part": row.part,
                        "number": row.number,
                    }
                    self._entries.append({**place, **told, **self._blob(row.answer)})

    def write(self, server: MongoServer, run_id: str) -> None:
        """Attempts first, entries last: an entry that can be read is whole, and what was paid for it is known."""
        _insert(server, "attempts", self._sent, run_id)
        self._end(server, run_id)
        for blob in self._blobs:
            blob.write_chunks(server)
        for document in self._kept:
            before = server["candidates"].find_one({"_id": document["_id"]})
            server["candidates"].replace_one({"_id": document["_id"]}, document, upsert=True)
            if before is not None and before["chunks"] and before["blob"] != document["blob"]:
                server["chunks"].delete_many({"_id": {"$in": chunk_names(before)}})
        _insert(server, "entries", self._entries, run_id)

    def _name(self, *numbers: str | int) -> str:
        return "/".join(map(str, (self._key, *numbers)))

    def _blob(self, data: bytes, *, readable: bool = False) -> Document:
        blob = Blob(data, readable=readable)
        self._blobs.append(blob)
        return blob.fields

    def _end(self, server: MongoServer, run_id: str) -> None:
        if not self._ended:
            return
        names = [self._name(ended.part, ended.number, ended.attempt) for ended in self._ended]
        updates = [
            UpdateOne({"_id": name}, {"$set": ended_record(ended)})
            for name, ended in zip(names, self._ended, strict=True)
        ]
        if server["attempts"].bulk_write(updates, ordered=False).matched_count == len(updates):
            return
        known = {found["_id"] for found in server["attempts"].find({"_id": {"$in": names}}, {"_id": 1})}
        for name, ended in zip(names, self._ended, strict=True):
            if name not in known:
                raise JournalError(f"run {run_id}: attempt {ended.part} {ended.number} {ended.attempt} was never sent")


def _insert(server: MongoServer, collection: str, documents: Sequence[Document], run_id: str) -> None:
    """Insert in order, over what an earlier try of the same owner left. Raises `NumberTaken` at a foreign document."""
    left = list(documents)
    while left:
        try:
            server[collection].insert_many(left)
        except BulkWriteError as error:
            failed = error.details.get("writeErrors") or [{}]
            if failed[0].get("code") != DUPLICATE:
                raise
            left = left[failed[0]["index"] :]
            there = {found["_id"]: found for found in server[collection].find({"_id": {"$in": _ids(left)}})}
            for document in left:
                found = there.get(document["_id"], document)
                if any(found[name] != document[name] for name in SAME[collection]):
                    where = document["_id"].partition("/")[2].replace("/", " ")
                    raise NumberTaken(f"run {run_id}: another process has written {where} of {collection}") from None
            left = [document for document in left if document["_id"] not in there]
        else:
            return


def _ids(documents: Iterable[Document]) -> list[str]:
    return [document["_id"] for document in documents]
