"""A stored run with sealed test rows and the test of its best candidate, written by hand through the store."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from gepa_client.analysis.ties import decide
from gepa_client.certificate.sealed_test import commitment_of, part_of_test, plan_part
from gepa_client.journal.answer_entries import TiePlan, part_of_ties
from gepa_client.journal.entries import COMMITMENT, PROCESSES, SEARCH, START, TIES, Attempt, Entry, Row
from gepa_client.journal.requests import digest_of, evaluate_key
from tests.gepa_client.stored_run import IDENTITY, NEEDS, URL, Made, candidates_of, entry_of

BEST = 4
"""Of the candidates of `Made`."""

TEST_SCORES = ([0.0] * 12, [1.0] * 10 + [0.0] * 2)
"""Of the seed and of the best candidate, by test row."""


@dataclass
class Certified(Made):
    """`Made` with test rows. `scores`: of seed and best, by test row; a list of repeats if a row has several."""

    identity: dict[str, Any] | None = field(default_factory=lambda: IDENTITY)
    scores: tuple[Sequence[Any], Sequence[Any]] = TEST_SCORES
    contents: Sequence[Any] | None = None
    """The data of each test row; by default all differ."""

    committed: bool = True
    tested: tuple[int, ...] = (0, BEST)
    also_tested: int | None = None
    """Another candidate that an earlier end of the run had tested."""

    tied: tuple[int, ...] = ()
    """Training rows on which the two best candidates, which tie, were compared; `searched` as in `TiePlan`."""

    searched: int = 0
    minibatch: tuple[int, int] | None = None
    """A training row on which the search evaluated the seed with traces, and the number of that request."""

    @property
    def test_rows(self) -> list[dict[str, Any]]:
        """The test rows as `start` records them."""
        if self.contents is not None:
            return [{"id": str(at), "data": data} for at, data in enumerate(self.contents)]
        return [
            {"id": str(at), "data": {"text": f"test row {at}", "label": "red"}} for at in range(len(self.scores[0]))
        ]

    def repeats(self) -> list[list[list[float]]]:
        """Scores of seed and best by row and repeat."""
        return [[each if isinstance(each, list) else [each] for each in scores] for scores in self.scores]

    def rows(self) -> list[Row]:
        """The journal of `Made` with what a test adds, without what a certificate does not rest on."""
        sealed = self.test_rows
        found = [row for row in super().rows() if getattr(row, "part", None) != PROCESSES]
        rows: list[Row] = []
        if self.committed:
            commitment = commitment_of(sealed, None).model_dump()
            rows.append(entry_of(COMMITMENT, 0, COMMITMENT, "c", commitment))
        training = orjson.loads(next(row for row in found if isinstance(row, Entry) and row.digest == "t").answer)
        if self.minibatch is not None:
            rows.append(_evaluated(SEARCH, self.minibatch[1], self.texts[0], training[self.minibatch[0]], trace=True))
        rows += [*found, *self._ties(training), entry_of(START, 3, "rows", "s", sealed)]
        candidates = {each.index: each for each in candidates_of(found)}
        repeats = len(self.repeats()[0][0]) if sealed else 1
        best = max(candidates.values(), key=lambda kept: kept.score).index
        rows.append(entry_of(plan_part(best), 0, "test_plan", "p", {"count": repeats, "reason": "by hand"}))
        tests = dict(zip(self.tested, self.repeats(), strict=False))
        if self.also_tested is not None:
            tests[self.also_tested] = self.repeats()[0]
        for index, scores in tests.items():
            candidate = digest_of(candidates[index].texts)
            for at, (row, given) in enumerate(zip(sealed, scores, strict=True)):
                for repeat, score in enumerate(given):
                    part = part_of_test(index, repeat)
                    key = evaluate_key(candidate, digest_of(row), row["id"], trace=False)
                    result = {"status": "ok", "score": score, "output": "red", "seconds": 0.1}
                    rows.append(key.answered(part, at, orjson.dumps(result)))
                    rows.append(Attempt(part, at, 1, "evaluate", URL, "first", "ok", 0.1, {"cost_usd": 0.01}))
        return rows

    def _ties(self, training: list[dict[str, Any]]) -> list[Entry]:
        """The comparison of the best two candidates, which both solve the rows."""
        if not self.tied:
            return []
        compared, pool = (BEST, 2), len(self.texts)
        plan = TiePlan(candidates=[*compared], rows=[*self.tied], searched=self.searched)
        validation = {index: [self.score(index, at) for at in range(len(NEEDS))] for index in compared}
        decision = decide(validation, dict.fromkeys(compared, [1.0] * len(self.tied)))
        return [
            entry_of(part_of_ties(pool), 0, TIES, "plan", plan.model_dump()),
            *(
                _evaluated(part_of_ties(pool, index), at, self.texts[index], training[row], trace=False)
                for index in compared
                for at, row in enumerate(self.tied)
            ),
            entry_of(part_of_ties(pool), 1, TIES, "decision", decision.model_dump()),
        ]


def _evaluated(part: str, number: int, text: str, row: dict[str, Any], *, trace: bool) -> Entry:
    key = evaluate_key(digest_of({"rules": text}), digest_of(row), row["id"], trace)
    result = {"status": "ok", "score": 1.0, "output": "red", "seconds": 0.1}
    return key.answered(part, number, orjson.dumps(result))
