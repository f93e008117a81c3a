"""The record of a run as its certificate reads it: test scores, noise, costs, digests and faults."""

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict

from gepa_client.analysis.power import Noise, noise_of
from gepa_client.analysis.ties import ancestry, decide, dropped_of, finalists
from gepa_client.certificate.sealed_test import Commitment, Repeats, part_of_test, plan_part
from gepa_client.errors import NoCertificate
from gepa_client.journal.answer_entries import TieDecision, TiePlan, part_of_left_rows, part_of_ties
from gepa_client.journal.entries import (
    COMMITMENT,
    EVALUATE,
    PROCESSES,
    RACE,
    SEARCH,
    STEER,
    TEST_PLAN,
    TIES,
    CandidateRecord,
    Entry,
    StoredRun,
    unreported_results,
)
from gepa_client.journal.history import RecordedRow, entries, score_of
from gepa_client.journal.requests import digest_of, evaluate_key
from gepa_client.journal.steer_entries import Propose, SteerEntry
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import ENTRY_FIELDS, ended_record
from gepa_client.settings.run_settings import LARGEST_SCORE

ROWS_NAMED = 3
"""Rows that a fault names."""

_TEST_PART = re.compile(r"test-(\d+)(?:-repeat-\d+)?")

RowScores = list[list[float]]
"""Scores by row, then by repeat."""


class CertificatePart(BaseModel):
    """A part of a certificate."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoiseFound(CertificatePart):
    """Variances of scores, estimated from the `rows` evaluations that the search repeated.

    `within`: of a row's score if it is evaluated again. `between`: of the true mean scores of rows.
    """

    rows: int
    within: float
    between: float


class UsedBudget(CertificatePart):
    """What the run used. `evaluations`, `test_evaluations`: recorded results of the search and of the test.

    `cost_usd`: US dollars, as far as they were reported. `unpriced`: results of an unknown price. `unreported`: results
    that reported no usage, as a program that calls no model has none.
    """

    evaluations: int
    test_evaluations: int
    cost_usd: float
    unpriced: int
    unreported: int


class ByHand(CertificatePart):
    """What users asked of the run while it ran. `requests`: those that it took, at least one.

    `texts`: those among them that proposed texts by hand; `best_has_them`: whether the best candidate, or one that it
    descends from, was proposed so: then the gain is not the optimizer's alone.
    """

    requests: int
    texts: int
    best_has_them: bool


def search_noise(store: Store, run: StoredRun) -> Noise | None:
    """Return the noise of the evaluations that the search of a run repeated so far; None if it repeated none."""
    return RecordedEntries(store, run, [SEARCH]).noise()


def reason_against(run: StoredRun, best: CandidateRecord | None, sealed: Sequence[RecordedRow]) -> str | None:
    """Return why there can be no certificate; None if there can be one."""
    if not sealed and run.config.get("testset") is None:
        return "the run has no test rows: give `testset` to the next one"
    if run.parent is not None and run.parent["at"]:
        return (
            f"the run is a fork: its first {run.parent['at']} entries are from before it committed to its test rows; "
            "start a new run"
        )
    if not sealed or best is None or run.status != "completed":
        return f"the run is {run.status}: its test rows are scored when the search is complete"
    return None


class WrongComparison(Exception):
    """The comparison of the best candidates contradicts the record; the text states how."""


class RecordedEntries:
    """One pass over the entries of a run, or over some parts of them.

    `commitment`: to the test rows, None without one. `tested`: candidates that were scored on the test rows.
    `raced_out`: proposals that races dropped. `seen`: every score. `digest`: of all but those of processes.
    """

    def __init__(self, store: Store, run: StoredRun, parts: Iterable[str] | None = None) -> None:
        self._failure_score = float(run.config.get("failure_score") or 0.0)
        self._compares_ties = bool(run.config.get("tie_rows"))
        self._search: dict[str, list[float]] = {}
        self._first: dict[str, int] = {}  # the number of the first evaluation of each request
        self._test: dict[str, list[tuple[str, float]]] = {}
        self._plans: dict[str, Repeats] = {}
        self._ties: dict[str, list[Entry]] = {}
        self._steered: dict[int, SteerEntry] = {}
        self.commitment: Commitment | None = None
        self.evaluations = self.raced_out = 0
        self.seen: set[float] = set()
        digest = hashlib.blake2b(digest_size=16)
        for part in sorted({*(parts or store.parts(run.id))} - {PROCESSES}):
            for entry in entries(store, run.id, part):
                place = [getattr(entry, name) for name in ENTRY_FIELDS]
                digest.update(orjson.dumps([*place, len(entry.answer)]) + entry.answer)
                if part == SEARCH and entry.kind == EVALUATE:
                    self.evaluations += 1
                    self._search.setdefault(entry.digest, []).append(self._score(entry.answer))
                    self._first.setdefault(entry.digest, entry.number)
                elif _TEST_PART.fullmatch(part) is not None and entry.kind == EVALUATE:
                    self._test.setdefault(part, []).append((entry.digest, self._score(entry.answer)))
                elif part.startswith(f"{TIES}-"):
                    self.evaluations += entry.kind == EVALUATE
                    self._ties.setdefault(part, []).append(entry)
                elif part == SEARCH and entry.kind == RACE:
                    self.raced_out += sum(one["drops"] for one in orjson.loads(entry.answer)["proposals"])
                elif part == SEARCH and entry.kind == STEER:
                    self._steered[entry.number] = SteerEntry.model_validate_json(entry.answer)
                elif part == COMMITMENT:
                    self.commitment = Commitment.model_validate_json(entry.answer)
                elif entry.kind == TEST_PLAN:
                    self._plans[part] = Repeats.model_validate_json(entry.answer)
        self.digest = digest.hexdigest()
        self.tested = {int(named[1]) for part in self._test if (named := _TEST_PART.fullmatch(part)) is not None}
        self.test_evaluations = sum(map(len, self._test.values()))

    def _score(self, answer: bytes) -> float:
        score = score_of(orjson.loads(answer), self._failure_score)
        if abs(score) > LARGEST_SCORE:
            raise NoCertificate(f"a score is {score:g}: beyond {LARGEST_SCORE:g} scores cannot be compared")
        self.seen.add(score)
        return score

    def noise(self) -> Noise | None:
        """Return the noise by the first two results of each request that the search repeated; None for a single one."""
        repeated = [scores[:2] for scores in self._search.values() if len(scores) > 1]
        return noise_of(repeated) if len(repeated) > 1 else None

    def plan(self, index: int) -> Repeats:
        """Return how often the test rows were to be scored for the seed and this candidate."""
        if (found := self._plans.get(plan_part(index))) is None:
            raise NoCertificate(
                "the limit that ended the run holds for the test rows too: they were not scored; resume it with a "
                "higher one"
            )
        return found

    def scores(self, kept: CandidateRecord, rows: Sequence[RecordedRow], repeats: int, faults: list[str]) -> RowScores:
        """Return a candidate's scores on the test rows; results of other texts or rows are `faults`."""
        candidate = digest_of(kept.texts)
        asked = [evaluate_key(candidate, digest_of(row.example), row.id, trace=False).digest for row in rows]
        columns = [self._test.get(part_of_test(kept.index, repeat), []) for repeat in range(repeats)]
        if (found := sum(map(len, columns))) < repeats * len(rows):
            raise NoCertificate(
                f"{found:,} of {repeats * len(rows):,} results of candidate {kept.index} on the test rows are recorded"
            )
        for repeat, column in enumerate(columns):
            if [digest for digest, _ in column] != asked:
                part = part_of_test(kept.index, repeat)
                faults.append(f"{part}: its results are not those of candidate {kept.index} on the test rows")
        return [[score for _, score in results] for results in zip(*columns, strict=False)]

    def by_hand(self, candidates: Sequence[CandidateRecord], best: CandidateRecord) -> ByHand | None:
        """Return how users steered the run; None if they did not.

        The texts of a candidate are by hand if they are its parent's, with those of a request before it.
        """
        if not self._steered:
            return None
        texts = {number: entry.action for number, entry in self._steered.items() if isinstance(entry.action, Propose)}
        proposed = {
            kept.index
            for kept in candidates
            for number, action in texts.items()
            if number < kept.number
            and kept.parents == [action.parent]
            and kept.texts == {**candidates[kept.parents[0]].texts, **action.texts}
        }
        descends = bool(ancestry(candidates, best) & proposed)
        return ByHand(requests=len(self._steered), texts=len(texts), best_has_them=descends)

    def compared(
        self, candidates: Sequence[CandidateRecord], train: Sequence[RecordedRow], val: Sequence[RecordedRow]
    ) -> dict[int, list[float]]:
        """Return the scores of the compared candidates on validation rows that the search left out; none if no such.

        Raises:
            WrongComparison: the choice of the best candidate does not follow from the scores on fresh rows.
        """
        dropped = dropped_of(candidates)
        part = partial(part_of_ties, len(candidates), dropped=len(dropped))
        found = self._ties.get(part(), [])
        if len(found) < 2:
            return {}
        plan = TiePlan.model_validate_json(found[0].answer)
        rows = {row.row_id: row for row in [*train, *val]}
        if not set(plan.rows) <= rows.keys():
            raise WrongComparison("the best candidates were compared on rows that the record lacks")
        validation = {row.row_id for row in val}
        left = [row for row in plan.rows if row in validation]
        scores = [kept.scores for kept in candidates]
        ties = self._compares_ties or not left
        if finalists(scores, dropped, ties=ties, seed=bool(left)) != plan.candidates:
            raise WrongComparison("the best candidates that were compared are not those of the record")
        used = [rows[row].id for row in left if any(str(row) in each for each in scores)]
        further = [rows[row] for row in plan.rows if row not in validation]
        used += self._rows_used(candidates, further, val, plan.searched)
        if used:
            named = ", ".join(used[:ROWS_NAMED])
            raise WrongComparison(
                f"{len(used)} rows on which the best candidates were compared are not fresh (ids {named})"
            )
        fresh: dict[int, list[float]] = {}
        for index in plan.candidates:
            results = [
                *self._ties.get(part_of_left_rows(index), [])[: len(left)],
                *self._ties.get(part(index), []),
            ]
            candidate = digest_of(candidates[index].texts)
            asked = [
                evaluate_key(candidate, digest_of(rows[row].example), rows[row].id, trace=False).digest
                for row in plan.rows
            ]
            if [entry.digest for entry in results] != asked:
                raise WrongComparison(
                    f"the results of candidate {index}, which was compared, are not those of the fresh rows"
                )
            fresh[index] = [self._score(entry.answer) for entry in results]
        made = TieDecision.model_validate_json(found[1].answer)
        if made != decide({index: list(scores[index].values()) for index in plan.candidates}, fresh, len(left)):
            raise WrongComparison("the decision between the best candidates does not follow from their scores")
        return {
            index: [score for row, score in zip(plan.rows, scored, strict=True) if row in validation]
            for index, scored in fresh.items()
        }

    def _rows_used(
        self,
        candidates: Sequence[CandidateRecord],
        rows: Sequence[RecordedRow],
        val: Sequence[RecordedRow],
        searched: int,
    ) -> list[str]:
        """Return the ids of those rows that a minibatch had: the search evaluated a candidate of the pool on them.

        Minibatches are evaluated with a parent, which is in the pool. A training row that is a validation row too is
        not looked for if the search scores candidates on it. `searched`: requests of the search that are looked at, at
        least those until the last candidate was found.
        """
        end = max(searched, max(kept.number for kept in candidates))
        validated = {digest_of(row.example) for row in val if str(row.row_id) in candidates[0].scores}
        texts = [digest_of(kept.texts) for kept in candidates]

        def used(row: RecordedRow) -> bool:
            example = digest_of(row.example)
            keys = (evaluate_key(each, example, row.id, trace) for each in texts for trace in (False, True))
            return example not in validated and any(self._first.get(key.digest, end) < end for key in keys)

        return [row.id for row in rows if used(row)]

    def scores_without_result(self, candidates: Sequence[CandidateRecord], rows: Sequence[RecordedRow]) -> list[str]:
        """Return a fault for each candidate with a validation score that no recorded result of the search has."""
        examples = {str(row.row_id): (digest_of(row.example), row.id) for row in rows}
        faults = []
        for kept in candidates:
            candidate = digest_of(kept.texts)
            wrong = [
                row
                for row, score in kept.scores.items()
                if row not in examples or score not in self._given(candidate, *examples[row])
            ]
            if wrong:
                named = ", ".join(wrong[:ROWS_NAMED])
                faults.append(f"candidate {kept.index}: the journal has no such result for {len(wrong)} rows ({named})")
        return faults

    def _given(self, candidate: str, example: str, row: str) -> list[float]:
        keys = (evaluate_key(candidate, example, row, trace) for trace in (False, True))
        return [score for key in keys for score in self._search.get(key.digest, ())]


def budget_used(store: Store, run_id: str, record: RecordedEntries) -> tuple[UsedBudget, str]:
    """Return what a run used, and a digest of all attempts, in an order that no store chooses."""
    digests, costs, unpriced, unreported = [], [], 0, 0
    for made in store.all_attempts(run_id):
        digests.append(digest_of(made))
        costs.append(ended_record(made)["cost_usd"] or 0.0)
        silent = unreported_results(made.kind, made.usage, made.examples, made.unpriced)
        unreported += silent
        unpriced += made.unpriced - silent
    used = UsedBudget(
        evaluations=record.evaluations,
        test_evaluations=record.test_evaluations,
        cost_usd=math.fsum(costs),
        unpriced=unpriced,
        unreported=unreported,
    )
    return used, digest_of(sorted(digests))


def changed_rows(rows: Sequence[dict[str, Any]], commitment: Commitment) -> str:
    """Return the fault that names the test rows that are not those committed to."""
    digests = [digest_of(row) for row in rows]
    changed = [
        str(row["id"]) for row, digest, old in zip(rows, digests, commitment.rows, strict=False) if digest != old
    ]
    if changed:
        return f"{len(changed)} test rows are not those committed to (ids {', '.join(changed[:ROWS_NAMED])})"
    return f"the run has {len(rows)} test rows, and the commitment is to {len(commitment.rows)} (or to another digest)"
