"""Checksums that chain the entries of one writer in the order of writing, so that damaged and lost ones are found."""

import hashlib
from dataclasses import dataclass

from gepa_client.journal.records import to_json

LINK_BYTES = 16
FIRST = bytes(LINK_BYTES)
"""The link before the first entry of a chain."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a writer's chain. `length`: its entries; `link`: of the last one."""

    length: int = 0
    link: bytes = FIRST

    def grown(self, checksum_: bytes) -> "Tail":
        """The end of the chain with one more entry."""
        return Tail(self.length + 1, link(self.link, checksum_))


@dataclass(frozen=True, slots=True)
class Link:
    """An entry's place in its writer's chain, with the checksum of what the store holds of it now.

    `seq`: from 0 in the order of writing; None for a stop, which may be deleted and is no part of the chain. `link`:
    what was written with the entry; None for entries of stores before version 2.
    """

    number: int
    owner: str
    seq: int | None
    link: bytes | None
    checksum: bytes


def checksum(part: str, number: int, kind: str, digest: str, about: str, *, packed: bool, data: bytes) -> bytes:
    """A checksum of an entry as it is stored; `data`: its answer, compressed where `packed`."""
    hashed = hashlib.blake2b(to_json([part, number, kind, digest, about, packed]).encode(), digest_size=LINK_BYTES)
    hashed.update(data)
    return hashed.digest()


def link(before: bytes, checksum_: bytes) -> bytes:
    """The link of an entry after one with the link `before`."""
    return hashlib.blake2b(before + checksum_, digest_size=LINK_BYTES).digest()
