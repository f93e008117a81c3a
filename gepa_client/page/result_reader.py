"""Read results on validation rows of what is no candidate yet: proposals that are being evaluated."""

from collections.abc import Sequence

import orjson

from gepa_client.journal.entries import EVALUATE, SEARCH, Entry
from gepa_client.journal.history import entries_at
from gepa_client.journal.requests import EvaluatedExample, digest_of, evaluate_key, evaluated_of
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE
from gepa_client.page.event_log import EventLog
from gepa_client.page.initial_rows import InitialRows
from gepa_client.page.pool_reader import PoolReader
from gepa_client.page.search_events import Results

MOST_WAITING = 4_096
"""Results whose candidate is not known yet: merges that were not kept never are."""


class ResultReader:
    """Adds the results of entries of the search, whose answers are read only if the page shows them."""

    def __init__(self, store: Store, run_id: str, log: EventLog, rows: InitialRows, pool: PoolReader) -> None:
        self._store, self._id, self._log = store, run_id, log
        self._rows, self._pool = rows, pool
        self._waiting: list[Entry] = []

    def read(self, evaluated: Sequence[Entry]) -> None:
        """Add the results of these entries; those of a candidate that is not known yet once it is."""
        places: dict[int, tuple[str, int]] = {}
        waiting, self._waiting = self._waiting[-MOST_WAITING:], []
        for entry in (*waiting, *evaluated):
            about = evaluated_of(entry.about)
            if about is None or about.candidate in self._pool.digests or about.quoted_id not in self._rows.places:
                continue
            place: int | None = self._rows.places[about.quoted_id][0]
            if about.quoted_id in self._rows.train_ids:
                digest = self._pool.proposed.get(about.candidate) or self._seed(about)
                if digest is None:
                    self._waiting.append(entry)
                    continue
                place = self._place(entry, about, digest)
            if place is not None:
                places[entry.number] = (about.candidate, place)
        self._add(places)

    def _place(self, entry: Entry, about: EvaluatedExample, digest: str) -> int | None:
        """Return the validation row that was evaluated with a candidate; None if it was a training row."""
        for place in self._rows.places[about.quoted_id]:
            key = evaluate_key(digest, self._rows.digest(place), self._rows.val[place].id, about.traced)
            if key.digest == entry.digest:
                return place
        return None

    def _seed(self, about: EvaluatedExample) -> str | None:
        """Return the digest of the seed, which is evaluated before there is a pool; None if another one was."""
        digest = digest_of(self._rows.program.get("seed_candidate"))
        return digest if digest.startswith(about.candidate) else None

    def _add(self, places: dict[int, tuple[str, int]]) -> None:
        numbers = sorted(places)
        for start in range(0, len(numbers), PAGE):
            found = Results(candidates=[], rows=[], numbers=[], scores=[], statuses=[])
            for entry in entries_at(self._store, self._id, SEARCH, numbers[start : start + PAGE]):
                if entry.kind == EVALUATE:
                    result = orjson.loads(entry.answer)
                    found.candidates.append(places[entry.number][0])
                    found.rows.append(places[entry.number][1])
                    found.numbers.append(entry.number)
                    found.scores.append(result.get("score"))
                    found.statuses.append(str(result.get("status")))
            self._log.add(found)
