"""Checks the entries of a run against their chains, and reports which part of a damaged journal can still be used."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from evolverpc_common.printed_commands import command
from gepa_client.errors import StoreDamaged
from gepa_client.journal.entries import SEARCH
from gepa_client.journal.store import Store, named_store
from gepa_client.journal.stored_fields import FIRST, LINK_BYTES, PAGE, ChainLink, link

BEYOND = 1 << 16
"""Entries that a store may hold beyond the recorded length of a chain; a larger place in it is a damaged one."""

Place = tuple[str, int]
"""Part and number."""


@dataclass(frozen=True)
class Damage:
    """What is wrong with a journal.

    `entries`: how many are recorded, lost ones included. `altered`: places whose entry is unreadable or not what was
    written, in order; `lost`: how many entries are gone. `usable`: all entries of the search below this number are
    sound, so a fork can begin with them.
    """

    entries: int
    altered: list[Place]
    lost: int
    usable: int

    def __str__(self) -> str:
        first = ", ".join(f"{part} {number}" for part, number in self.altered[:3])
        found = [
            f"{len(self.altered):,} unreadable or altered (first: {first})" if self.altered else "",
            f"{self.lost:,} lost or out of reach" if self.lost else "",
        ]
        sound = self.entries - len(self.altered) - self.lost
        return f"{sound:,} of its {self.entries:,} entries are sound; {' and '.join(filter(None, found))}"


def damage(store: Store, run_id: str) -> Damage | None:
    """Return the damage of a run's journal; None if every entry is what was written and none is lost.

    A chain may be longer than its recorded length: the last write of a killed process.

    Raises: what the store raises if it is unavailable or holds no such run.
    """
    check = _Check(store, run_id)
    check.read()
    altered, lost = check.compare()
    if not altered and not lost:
        return None
    return Damage(check.entries + lost, altered, lost, check.usable(altered, lost))


def check_sound(store: Store, run_id: str) -> None:
    """Raise `StoreDamaged` with what is sound and how to continue from there, unless the whole journal is."""
    if (found := damage(store, run_id)) is not None:
        fork = command("fork", run_id, "--at", str(found.usable), store=named_store(store.url))
        raise StoreDamaged(
            f"the journal of run {run_id} is damaged: {found}. All of `search` below {found.usable} can be used: "
            f"`{fork}` starts a run from it, and nothing in it is paid for again"
        )


@dataclass
class _Chain:
    """The links and checksums of one writer's entries, by their place in its chain; compact, for a million of them."""

    length: int
    links: bytearray = field(default_factory=bytearray)
    checksums: bytearray = field(default_factory=bytearray)
    there: bytearray = field(default_factory=bytearray)
    doubled: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """Links of further entries at a place: without transactions two writes may follow the same entry."""

    def add(self, one: ChainLink) -> bool:
        """Whether the entry has a place and a link; a further one at a place is checked by itself."""
        seq, its_link = one.seq, one.link
        if not isinstance(seq, int) or not isinstance(its_link, bytes) or len(its_link) != LINK_BYTES:
            return False
        if not 0 <= seq < self.length + BEYOND:
            return False
        if (more := seq + 1 - len(self.there)) > 0:
            self.there.extend(bytes(more))
            self.links.extend(bytes(LINK_BYTES * more))
            self.checksums.extend(bytes(LINK_BYTES * more))
        if self.there[seq]:
            self.doubled[seq].append(its_link)
            return True
        at = slice(seq * LINK_BYTES, (seq + 1) * LINK_BYTES)
        self.there[seq], self.links[at], self.checksums[at] = 1, its_link, one.checksum
        return True

    def altered(self) -> set[int]:
        """Places whose link does not follow from the entry and the one before it."""
        found: set[int] = set()
        before: list[bytes] = [FIRST]
        for seq, is_there in enumerate(self.there):
            at = slice(seq * LINK_BYTES, (seq + 1) * LINK_BYTES)
            own = bytes(self.links[at])
            if is_there and all(link(each, bytes(self.checksums[at])) != own for each in before):
                found.add(seq)
            before = [own, *self.doubled.get(seq, ())]
        return found

    def lost(self) -> int:
        """Places that were written and hold nothing."""
        return max(0, self.length - len(self.there)) + self.there[: self.length].count(0)


class _Check:
    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._chains = {owner: _Chain(length) for owner, length in store.chains(run_id).items()}
        self._altered: list[Place] = []
        self._search_begins = 0  # every number of the search below it is there
        self._search_ends = 0
        self.entries = 0

    def read(self) -> None:
        for part in self._store.parts(self._run_id):
            for one in self._links(part):
                self.entries += 1
                if part == SEARCH:
                    self._search_ends = one.number + 1
                    self._search_begins += one.number == self._search_begins
                if not self._has_place(one):
                    self._altered.append((part, one.number))

    def compare(self) -> tuple[list[Place], int]:
        """Altered entries in order, and how many are lost."""
        altered = {owner: found for owner, chain in self._chains.items() if (found := chain.altered())}
        places = set(self._altered)
        if altered:
            places |= {
                (part, one.number)
                for part in self._store.parts(self._run_id)
                for one in self._links(part)
                if one.seq in altered.get(one.owner, ())
            }
        lost = sum(chain.lost() for chain in self._chains.values())
        return sorted(places), max(0, lost - len(self._altered))  # an unreadable entry leaves its place empty

    def usable(self, altered: list[Place], lost: int) -> int:
        """Below which number the search is sound. A lost entry may have had any number that is absent now."""
        limits = [number for part, number in altered if part == SEARCH]
        return min([*limits, self._search_begins if lost else self._search_ends])

    def _has_place(self, one: ChainLink) -> bool:
        if one.seq is None:
            return one.link == link(FIRST, one.checksum)
        return self._chains.setdefault(one.owner, _Chain(0)).add(one)  # killed before it wrote the length

    def _links(self, part: str) -> Iterator[ChainLink]:
        """Yield the links of a part up to the first unreadable one; the entries after it count as lost."""
        start, limit = 0, PAGE
        while True:
            try:
                page = self._store.links(self._run_id, part, start, limit)
            except StoreDamaged:
                if limit > 1:
                    limit = 1  # one at a time up to the unreadable one
                    continue
                if (part, start) not in self._altered:
                    self._altered.append((part, start))
                return
            if not page:
                return
            yield from page
            start = page[-1].number + 1
