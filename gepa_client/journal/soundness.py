"""Checks the entries of a run against their checksums, and reports which part of a damaged journal can be used."""

from collections.abc import Iterator
from dataclasses import dataclass

from evolverpc_common.display_text import command
from gepa_client.errors import StoreDamaged
from gepa_client.journal.entries import SEARCH
from gepa_client.journal.store import Store, named_store
from gepa_client.journal.stored_fields import PAGE, Seal

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

    A writer may have more entries than are counted: the last write of a killed process.

    Raises: what the store raises if it is unavailable or holds no such run.
    """
    written = store.writers(run_id)
    places = {owner: bytearray() for owner in written}
    altered: list[Place] = []
    claimed: list[Seal] = []  # the altered ones, whose own places may be empty otherwise
    entries = search_begins = search_ends = 0  # every number of the search below `search_begins` is there
    for part in store.parts(run_id):
        for one in _seals(store, run_id, part):
            entries += 1
            if part == SEARCH:
                search_ends = one.number + 1
                search_begins += one.number == search_begins
            if not one.sound:
                altered.append((part, one.number))
                claimed.append(one)
            elif one.seq is not None and one.seq < written.get(one.owner, 0):
                own = places[one.owner]
                own.extend(bytes(max(0, one.seq + 1 - len(own))))
                own[one.seq] = 1  # without transactions two writes may have taken the same place
    empty = sum(written[owner] - own.count(1) for owner, own in places.items())
    lost = max(0, empty - len(altered))
    for one in claimed:
        own = places.get(one.owner, bytearray())
        empty -= isinstance(one.seq, int) and 0 <= one.seq < len(own) and not own[one.seq]
    if not altered and not lost:
        return None
    # A lost entry may have had any number that is absent now.
    usable = min([search_begins if empty else search_ends, *(number for part, number in altered if part == SEARCH)])
    return Damage(entries + lost, sorted(altered), lost, usable)


def check_sound(store: Store, run_id: str) -> None:
    """Raise `StoreDamaged` with what is sound and how to continue from there, unless the whole journal is."""
    if (found := damage(store, run_id)) is not None:
        fork = command("fork", run_id, "--at", str(found.usable), store=named_store(store.url))
        raise StoreDamaged(
            f"the journal of run {run_id} is damaged: {found}. All of `search` below {found.usable} can be used: "
            f"`{fork}` starts a run from it, and nothing in it is paid for again"
        )


def _seals(store: Store, run_id: str, part: str) -> Iterator[Seal]:
    """Yield the seals of a part up to the first unreadable entry; those after it count as lost."""
    start, limit = 0, PAGE
    while True:
        try:
            page = store.seals(run_id, part, start, limit)
        except StoreDamaged:
            if limit == 1:
                yield Seal(start, "", None, sound=False)
                return
            limit = 1  # one at a time up to the unreadable one
            continue
        if not page:
            return
        yield from page
        start = page[-1].number + 1
