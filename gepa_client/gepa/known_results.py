"""Reuse the results of a deterministic program: no candidate is evaluated twice on the same row."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from gepa_client.gepa.batch_evaluator import EvaluationItem
from gepa_client.gepa.evaluation_results import Results, instance_of
from gepa_client.gepa.rows import AnyRow, noise_warning
from gepa_client.journal.entries import REUSE
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import digest_of, request_key

Evaluate = Callable[[Sequence[EvaluationItem]], Awaitable[list[Results]]]
Place = tuple[str, str]
"""The digests of a candidate and a row."""


@dataclass(frozen=True)
class CompletedItem:
    """The results of an item, in the order of its rows, and those among them that were evaluated for it.

    `numbers`: of the entries of the results.
    """

    numbers: list[int]
    results: Results
    fresh: Results


@dataclass(frozen=True, slots=True)
class _Known:
    """A result of the search, by its number in the journal. `instance`: of the server that keeps its trajectory."""

    number: int
    traced: bool
    instance: str | None
    score: float


@dataclass
class KnownResults:
    """The results of a run's search, read from the journal when they are needed again.

    A request with traces is served by results with traces alone, all of them kept by one server, which reflects on the
    whole minibatch. Failed examples are evaluated again. What is reused follows from recorded results, so a replay
    reuses the same. A call that reuses results is an entry of the journal, which needs a store: the numbers of all its
    results.

    `reused`: results that were not evaluated again. `warn`: called once, if a row has two scores with one candidate.
    """

    journal: Journal
    warn: Callable[[str], None] = lambda _message: None
    reused: int = 0
    _is_noisy: bool = False
    _known: dict[Place, _Known] = field(default_factory=dict)

    async def complete(self, items: Sequence[EvaluationItem], evaluate: Evaluate) -> list[CompletedItem]:
        """Return the results of each item, having `evaluate` make those that are missing. Raises: as `evaluate`."""
        places = [[(digest_of(item.candidate), row.digest) for row in item.rows] for item in items]
        known = [self._serving(where, traced=item.trace) for item, where in zip(items, places, strict=True)]
        missing = _missing(items, places, known)
        numbered = itertools.count(self.journal.next_number)  # GEPA asks from one thread
        made = iter(await evaluate([item for item in missing if item.rows]))
        fresh = [next(made) if item.rows else [] for item in missing]
        results: dict[Place, tuple[int, dict[str, Any]]] = {}
        for item, own in zip(missing, fresh, strict=True):
            candidate = digest_of(item.candidate)
            for row, result in zip(item.rows, own, strict=True):
                if (before := self._known.get((candidate, row.digest))) is not None and result["status"] == "ok":
                    self.compare(row, [before.score, result["score"]])
                number = next(numbered)
                results[candidate, row.digest] = number, result
                self._keep((candidate, row.digest), number, item, result)
        for found in known:
            for place, one in found.items():
                results.setdefault(place, (one.number, self._read(one)))
        reused = sum(map(len, places)) - sum(map(len, fresh))
        numbers = [[results[place][0] for place in where] for where in places]
        if reused:
            await self._record(numbers, reused)
        return [
            CompletedItem(of_item, [results[place][1] for place in where], own)
            for of_item, where, own in zip(numbers, places, fresh, strict=True)
        ]

    def compare(self, row: AnyRow, scores: Sequence[float]) -> None:
        """Warn if the scores of one candidate on a row differ, of the first such row."""
        message = noise_warning(row, scores)
        if message is not None and not self._is_noisy:
            self._is_noisy = True
            self.warn(message)

    def _serving(self, places: Sequence[Place], *, traced: bool) -> dict[Place, _Known]:
        found = {place: self._known[place] for place in places if place in self._known}
        if not traced:
            return found
        found = {place: one for place, one in found.items() if one.traced}
        instance = next((one.instance for one in found.values()), None)
        return {place: one for place, one in found.items() if one.instance == instance}

    def _keep(self, place: Place, number: int, item: EvaluationItem, result: dict[str, Any]) -> None:
        if result["status"] == "ok":
            self._known[place] = _Known(number, item.trace, instance_of(result), result["score"])

    def _read(self, known: _Known) -> dict[str, Any]:
        answer = self.journal.storage.answer(self.journal.part, known.number)
        result: dict[str, Any] = orjson.loads(answer)
        return self.journal.shortened(known.number, len(answer), result)

    async def _record(self, numbers: list[list[int]], reused: int) -> None:
        [request] = self.journal.ask([request_key(REUSE, f"reuse {reused} results", numbers)])
        if request.entry is None:
            with self.journal.executing([request]):
                self.journal.record((request, numbers))
                await self.journal.settled()
        self.reused += reused


def _missing(
    items: Sequence[EvaluationItem], places: Sequence[Sequence[Place]], known: Sequence[dict[Place, _Known]]
) -> list[EvaluationItem]:
    """Return the items with the rows that have no result yet, each pair of candidate and row once."""
    missing: list[EvaluationItem] = []
    awaited: set[Place] = set()
    for item, where, found in zip(items, places, known, strict=True):
        rows = {
            place: row
            for place, row in zip(where, item.rows, strict=True)
            if place not in found and place not in awaited
        }
        awaited |= rows.keys()
        instance = next((one.instance for one in found.values()), None) if item.trace else None
        missing.append(replace(item, rows=list(rows.values()), instance=instance))
    return missing
