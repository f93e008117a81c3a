"""The result of a run, read from its folder; TypeScript's `optimize` returns the same fields in camelCase."""

import difflib
import json
from dataclasses import dataclass, field
from pathlib import Path

from gepa_client.certificate.verdict import Verdict
from gepa_client.evolution.candidate_names import component_texts
from gepa_client.journal.run_events import Status
from gepa_client.run import output_folder as files
from gepa_client.views import notebook
from gepa_client.views.final_summary import RunSummary

FILES = {
    "best_candidate": files.BEST_CANDIDATE,
    "result": files.RESULT,
    "report": files.REPORT,
    "events": files.EVENTS,
    "log": files.LOG,
}


@dataclass(frozen=True)
class KeptCandidate:
    """A candidate that a run kept; the first one is the seed.

    `score`: the mean over the validation rows. `val_scores`: the score on each of them, by the row's id. `parents`: the
    positions of the candidates it was made from.
    """

    texts: dict[str, str]
    score: float
    val_scores: dict[str, float]
    parents: list[int]


@dataclass(frozen=True)
class Diff:
    """The best texts against the seed's; a notebook shows it as HTML."""

    text: str
    html: str = field(repr=False)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return notebook.page(self.html)


@dataclass(frozen=True, repr=False)
class Result:
    """What a run found. Scores are means over the rows.

    `status`: `completed`; another one, such as `paused`, in an `OptimizeError`. `reason`: what ended the run.
    `best_candidate`: the best texts, by component; the seed's if none is better. `best_score`, `seed_score`: on the
    validation rows; after a search on a sample, on that and the rows compared at the end. `test_score`,
    `seed_test_score`: of the best candidate and of the seed on the test rows; None if there are none. `verdict`: of the
    run's certificate, whether the test rows show a gain: `improved`, `no difference` or `worse`; None if there is no
    certificate. `candidates`: all that were kept, in the order in which they were found. `spent_usd`: what is known to
    be spent. `seconds`: of work. `output`: the folder of the run, and `files`, by name, those in it.
    """

    run_id: str
    status: Status
    reason: str | None
    best_candidate: dict[str, str]
    best_score: float
    seed_score: float
    test_score: float | None
    seed_test_score: float | None
    verdict: Verdict | None
    candidates: list[KeptCandidate] = field(repr=False)
    metric_calls: int
    spent_usd: float
    seconds: float
    output: Path
    files: dict[str, Path]

    def __repr__(self) -> str:
        scores = f"score {self.seed_score:.4g} -> {self.best_score:.4g}"
        if self.seed_test_score is not None and self.test_score is not None:
            scores += f", on test rows {self.seed_test_score:.4g} -> {self.test_score:.4g}"
        return f"<Result of run {self.run_id}: {self.status}, {scores}, {self.metric_calls} metric calls>"

    @property
    def diff(self) -> Diff:
        """The best texts against the seed's."""
        seed, parts = self.candidates[0].texts, list[str]()
        for name, text in self.best_candidate.items():
            old = seed.get(name, "")
            lines = difflib.unified_diff(old.splitlines(), text.splitlines(), f"seed: {name}", f"best: {name}", "", "")
            parts += [part.rstrip("\n") for part in lines]
        return Diff("\n".join(parts), notebook.texts_compared(seed, self.best_candidate))


def result_of(ended: RunSummary) -> Result | None:
    """Return the result in the folder of a run; None if the run ended before its seed was scored."""
    if ended.output is None or not (ended.output / files.RESULT).is_file():
        return None
    found = json.loads((ended.output / files.RESULT).read_text(encoding="utf-8"))
    best, rows, tested = found["best_idx"], found["val_rows"], found["test_scores"]
    candidates = [
        KeptCandidate(
            component_texts(texts),
            score,
            {rows.get(row, row): each for row, each in by_row.items()},
            [parent for parent in parents if parent is not None],
        )
        for texts, score, by_row, parents in zip(
            found["candidates"], found["val_aggregate_scores"], found["val_subscores"], found["parents"], strict=True
        )
    ]
    return Result(
        run_id=ended.run_id,
        status=ended.finished.status,
        reason=ended.finished.reason,
        best_candidate=candidates[best].texts,
        best_score=found["best_score"],
        seed_score=found["seed_score"],
        test_score=tested.get(str(best)),
        seed_test_score=tested.get("0"),
        verdict=ended.view.certificate.verdict if ended.view.certificate is not None else None,
        candidates=candidates,
        metric_calls=ended.view.metric_calls,
        spent_usd=ended.view.spent_usd,
        seconds=ended.view.active_seconds,
        output=ended.output,
        files={name: ended.output / file for name, file in FILES.items()},
    )
