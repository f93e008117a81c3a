"""Why the best candidate of a run is better: each change on the way to it, its reason, and the rows that it moved."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolverpc_common.display_text import counted
from gepa_client.analysis.paired_comparison import mcnemar_p
from gepa_client.analysis.proposals import (
    ROWS_SHOWN,
    ComparedRow,
    ProposalHistory,
    excerpt,
    row_result,
)
from gepa_client.analysis.ties import ancestry, best_candidate, pool_at
from gepa_client.evolution.candidate_names import candidate_name
from gepa_client.journal.entries import CandidateRecord, StoredRun
from gepa_client.journal.history import (
    evaluation_numbers,
    results,
    selection_name,
    selection_rows,
)
from gepa_client.journal.store import Store

STEPS_SHOWN = 40
"""Changes on the way to the best candidate that are explained, the last ones."""

GROUPS = ("Better", "Worse", "The same, and not perfect")
"""The names of the rows that a change made better, made worse, and left below the perfect score."""

OTHERS_SHOWN = 50
"""Other proposals that are named, the last ones."""


@dataclass(frozen=True)
class RowGroup:
    """Rows that a change made better, made worse or left: how many, and those that moved most, or that score lowest."""

    name: str
    count: int
    rows: tuple[ComparedRow, ...]


@dataclass(frozen=True)
class PairedScores:
    """Two candidates on the same rows: how many are better and worse with the second, and the means.

    `p`: the sign test's probability that chance alone divides the rows that differ at least so unevenly.
    """

    rows: int
    before: float
    after: float
    better: int
    worse: int
    p: float


@dataclass(frozen=True)
class Change:
    """A candidate against one of its parents, or against the seed.

    `against`: the parent with the better score if it has two. `scores`: over the validation rows that both have, or
    over the training rows in a run without validation rows. `title`, `origin`, `moved`: in words. `groups`: the rows
    that it made better, made worse, and left below the perfect score; the last ones for the whole way alone.
    `proposal`: where its proposal begins; None for a merge and for the whole way from the seed.
    """

    candidate: int
    against: int
    scores: PairedScores
    title: str
    origin: str
    moved: str
    groups: tuple[RowGroup, ...]
    proposal: int | None


@dataclass(frozen=True)
class Explanation:
    """A run explained, without markup; `best`: a candidate's index, 0 if none is better than the seed.

    `overall`: the best candidate against the seed, None if it is the seed. `steps`: the changes on the way from the
    seed to it, oldest first; `steps_omitted`: earlier ones that are left out. `others`: where the proposals begin that
    are on no step, the last ones, oldest first.
    `proposed`, `kept`: how many proposals reflection made, and how many became candidates.
    """

    best: int
    overall: Change | None
    steps: tuple[Change, ...]
    steps_omitted: int
    others: tuple[int, ...]
    proposed: int
    kept: int


def explain(store: Store, run: StoredRun, until: int | None = None) -> Explanation | None:
    """Return why the best candidate is better than the seed; None before the seed has been scored.

    `until`: only what was requested before this number of the journal. Only the answers that are shown are read.
    """
    candidates = pool_at(store.candidates(run.id), until)
    best = best_candidate(store, run.id, candidates)
    if best is None:
        return None
    history = ProposalHistory(store, run, candidates, until)
    way = [candidates[index] for index in sorted(ancestry(candidates, best)) if index]
    shown, on_way = way[-STEPS_SHOWN:], {kept.index for kept in way}
    others = [number for number, one in history.recorded.items() if one.candidate not in on_way]
    pairs = [(candidates[0], best)] if len(way) > 1 else []
    pairs += [(_base(candidates, kept), kept) for kept in shown]
    changes = _changes(store, run, pairs, history, until)
    steps = changes[-len(shown) :] if shown else []
    return Explanation(
        best=best.index,
        overall=changes[0] if changes else None,
        steps=tuple(steps),
        steps_omitted=len(way) - len(shown),
        others=tuple(others[-OTHERS_SHOWN:]),
        proposed=len(history.recorded),
        kept=sum(one.candidate is not None for one in history.recorded.values()),
    )


def explain_candidate(
    store: Store, run: StoredRun, candidates: Sequence[CandidateRecord], index: int, history: ProposalHistory
) -> Change | None:
    """Return the change that made one candidate; None for the seed. `history`: the proposals of the run."""
    kept = candidates[index]
    if not kept.parents:
        return None
    return _changes(store, run, [(_base(candidates, kept), kept)], history)[0]


def paired_scores(before: Sequence[float], after: Sequence[float]) -> PairedScores:
    """Compare the scores of two candidates on the same rows."""
    gains = [new - old for old, new in zip(before, after, strict=True)]
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    rows = len(before)
    means = (sum(before) / rows, sum(after) / rows) if rows else (0.0, 0.0)
    return PairedScores(rows, *means, better, worse, mcnemar_p(gains))


def _base(candidates: Sequence[CandidateRecord], kept: CandidateRecord) -> CandidateRecord:
    return max((candidates[parent] for parent in kept.parents), key=lambda parent: parent.score)


def _changes(
    store: Store,
    run: StoredRun,
    pairs: Sequence[tuple[CandidateRecord, CandidateRecord]],
    history: ProposalHistory,
    until: int | None = None,
) -> list[Change]:
    """Return the second of each pair against the first, with the results of the rows that are shown.

    Rows that a change left are those of the first pair.
    """
    perfect = run.config.get("perfect_score")
    moved = [
        (
            _moved(before, after, 1),
            _moved(before, after, -1),
            _left(before, after, 1.0 if perfect is None else float(perfect)) if at == 0 else [],
        )
        for at, (before, after) in enumerate(pairs)
    ]
    splits = selection_rows(store, run.id)
    split = "val" if "val" in splits else "train"
    by_id = {row.row_id: row for row in splits.get(split, [])}
    places = {
        (kept.index, row): (kept, by_id[row])
        for pair, groups in zip(pairs, moved, strict=True)
        for kept in pair
        for rows in groups
        for row in rows[:ROWS_SHOWN]
        if row in by_id
    }
    failure_score = float(run.config.get("failure_score") or 0.0)
    numbers = evaluation_numbers(store, run.id, until)
    recorded = results(store, run.id, places.values(), lambda _, result: row_result(result, failure_score), numbers)

    def group(name: str, before: CandidateRecord, after: CandidateRecord, moved_rows: Sequence[int]) -> RowGroup:
        shown = [by_id[row] for row in moved_rows[:ROWS_SHOWN] if row in by_id]
        rows = [
            ComparedRow(
                row.id,
                excerpt(row.data),
                before=recorded.get((before.index, row.row_id)),
                after=recorded.get((after.index, row.row_id)),
                split=split,
            )
            for row in shown
        ]
        return RowGroup(name, len(moved_rows), tuple(rows))

    numbers_of = {one.candidate: number for number, one in history.recorded.items()}
    selecting = f"{selection_name(training_only=split == 'train')} row"
    changes = []
    for (before, after), groups in zip(pairs, moved, strict=True):
        shared = [row for row in after.scores if row in before.scores]
        scores = paired_scores([before.scores[row] for row in shared], [after.scores[row] for row in shared])
        whole = before.index not in after.parents  # the way from the seed, not a step
        changes.append(
            Change(
                candidate=after.index,
                against=before.index,
                scores=scores,
                title=f"Candidate {after.index}: {scores.before:.4g} -> {scores.after:.4g} "
                f"on {counted(scores.rows, selecting)}",
                origin=_origin(after, before),
                moved=moved_rows(scores),
                groups=tuple(
                    group(name, before, after, rows) for name, rows in zip(GROUPS, groups, strict=True) if rows
                ),
                proposal=None if whole else numbers_of.get(after.index),
            )
        )
    return changes


def moved_rows(paired: PairedScores) -> str:
    """`5 rows are better, 1 is worse and 6 the same`."""
    same = paired.rows - paired.better - paired.worse
    better = f"{counted(paired.better, 'row')} {'is' if paired.better == 1 else 'are'} better"
    return f"{better}, {paired.worse} {'is' if paired.worse == 1 else 'are'} worse and {same} the same"


def _origin(after: CandidateRecord, before: CandidateRecord) -> str:
    """Return where a candidate comes from, and when it was found, as a sentence."""
    came = " and ".join(map(candidate_name, after.parents))
    merged = f", merged; compared with {candidate_name(before.index)}" if len(after.parents) > 1 else ""
    return f"From {came}{merged}. Iteration {after.iteration:,}, after {after.metric_calls:,} metric calls."


def _moved(before: CandidateRecord, after: CandidateRecord, sign: int) -> list[int]:
    """Return GEPA's ids of the rows whose score rose (`sign` 1) or fell (-1), those that moved most first."""
    shared = [(row, score) for row, score in after.scores.items() if row in before.scores]
    differences = {int(row): sign * (score - before.scores[row]) for row, score in shared}
    return sorted((row for row, moved in differences.items() if moved > 0), key=lambda row: -differences[row])


def _left(before: CandidateRecord, after: CandidateRecord, perfect: float) -> list[int]:
    """Return GEPA's ids of the rows whose score stayed the same and below the perfect one, the lowest first."""
    same = [(score, int(row)) for row, score in after.scores.items() if before.scores.get(row) == score < perfect]
    return [row for _, row in sorted(same)]
