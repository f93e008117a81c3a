"""Why a candidate is better: its words, its reason, and its rows, from the journal of a run alone."""

import json
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import orjson
import pytest

from gepa_client.analysis import explanation, proposals
from gepa_client.analysis.explanation import Change, Explanation, RowGroup, explain, explain_candidate, paired_scores
from gepa_client.analysis.proposals import ComparedRow
from gepa_client.journal.store import find_run, open_store
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.stored_run import Made, put
from tests.gepa_client.word_program import Script

STORE = Path("runs") / "evolverpc.db"


def explained(path: Path, until: int | None = None) -> Explanation:
    with closing(open_store(str(path))) as store:
        found = explain(store, find_run(store, "last"), until)
    assert found is not None
    assert json.loads(orjson.dumps(asdict(found))) == json.loads(json.dumps(asdict(found)))  # it is JSON
    return found


def shown(row: ComparedRow) -> tuple[str, str | None, list[tuple[float, str | None, str | None] | None]]:
    """A row's id, its input, and the score, output and feedback before and after."""
    return (
        row.row,
        row.input.text if row.input is not None else None,
        [
            (one.score, one.output.text if one.output else None, one.feedback.text if one.feedback else None)
            if one is not None
            else None
            for one in (row.before, row.after)
        ],
    )


def group(change: Change, name: str) -> RowGroup:
    """The rows of this name; none if there are none."""
    return next((each for each in change.groups if each.name.startswith(name)), RowGroup(name, 0, ()))


def test_each_step_has_its_minibatch_and_the_rows_that_it_moved(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    words.seed = {"rules": "Sort by colour:"}
    assert cli("optimize", serve(words), "--max-metric-calls", 200, "--check", "off").status == 0
    found = explained(tmp_path / STORE)
    assert [step.candidate for step in found.steps] == list(range(1, found.best + 1))
    first = found.steps[0]
    with closing(open_store(str(tmp_path / STORE))) as store:
        run = find_run(store, "last")
        history = proposals.ProposalHistory(store, run, store.candidates(run.id))
        assert first.proposal is not None
        made = history.recorded[first.proposal]
        minibatch = history.rows(made)
    word = made.texts["rules"].removeprefix("Sort by colour:").strip()
    better = group(first, "Better")
    assert better.count == sum(row["need"] == word for row in words.datasets["val"]) == first.scores.better
    assert first.title.endswith(" on 12 validation rows") and first.origin.startswith("From the seed. Iteration 1")
    for row in better.rows:
        data = words.datasets["val"][int(row.row)]
        assert shown(row) == (
            row.row,
            f"text: {data['text']}\nneed: {word}",
            [(0.0, f"{word} missing", f"needs {word}"), (1.0, f"{word} found", f"needs {word}")],
        )
    assert (made.begun.parent, len(made.begun.rows), made.outcome) == (0, 3, "kept")
    assert made.evaluated is not None
    assert (made.begun.score, made.evaluated.score) == (0.0, sum(row.after.score for row in minibatch if row.after))
    assert [shown(row)[1] for row in minibatch] == [
        f"text: {data['text']}\nneed: {data['need']}"
        for data in (words.datasets["train"][int(row.row)] for row in minibatch)
    ]
    assert found.overall is not None
    assert (found.overall.against, group(found.overall, "Better").count) == (0, 12)
    assert found.overall.scores == paired_scores([0.0] * 12, [1.0] * 12)
    assert (found.proposed, found.kept) == (len(found.steps) + len(found.others), found.best)


def test_rejected_proposals_have_their_words_and_why(serve: Serve, cli: Cli, words: Script, tmp_path: Path) -> None:
    words.propose = lambda params: {"texts": {"rules": f"{params['candidate']['rules']} useless"}}
    assert cli("optimize", serve(words), "--max-metric-calls", 40, "--check", "off", "--proposals", 2).status == 0
    found = explained(tmp_path / STORE)
    assert (found.best, found.overall, found.steps) == (0, None, ())
    assert found.proposed == len(found.others) > 1
    with closing(open_store(str(tmp_path / STORE))) as store:
        run = find_run(store, "last")
        history = proposals.ProposalHistory(store, run, store.candidates(run.id))
        rows = [row for number in found.others for row in history.rows(history.recorded[number])]
    assert all(row.after == row.before is not None for row in rows)
    assert {history.recorded[number].texts["rules"] for number in found.others} == {" useless"}


def test_rows_that_a_change_broke_are_shown_and_a_merge_is_compared_with_its_better_parent(tmp_path: Path) -> None:
    texts = ("red", "green", "red\ngreen", "blue", "red\ngreen\nblue")
    put(tmp_path / "runs.db", Made(texts=texts, broken=frozenset({(1, 1)}), absent=frozenset({(0, 3)})))
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        run = find_run(store, "last")
        candidates = store.candidates(run.id)
        history = proposals.ProposalHistory(store, run, candidates)
        worse = explain_candidate(store, run, candidates, 1, history)
        merged = explain_candidate(store, run, candidates, 4, history)
        assert explain_candidate(store, run, candidates, 0, history) is None
        found = explain(store, run)
    assert worse is not None
    broke, same = group(worse, "Worse"), group(worse, "The same")
    assert (group(worse, "Better").count, broke.count, worse.scores.rows) == (0, 2, 4)
    assert [(row.row, row.before and row.before.score) for row in broke.rows] == [("0", 1.0), ("3", None)]
    assert [(row.row, row.after and row.after.score) for row in same.rows] == [("1", 0.0), ("2", 0.0)]
    assert merged is not None
    assert (merged.against, merged.proposal) == (2, None)
    assert merged.origin.startswith("From candidate 2 and candidate 3, merged; compared with candidate 2.")
    assert found is not None
    assert [step.candidate for step in found.steps] == [1, 2, 3, 4]
    assert [group(step, "The same").count for step in found.steps] == [0, 0, 0, 0]
    failed = Made(texts=texts, broken=frozenset({(1, 1)})).result(1, 1)
    shown = proposals.row_result(failed, -2.0)
    assert shown.error is not None
    assert (shown.score, shown.error.text) == (-2.0, "ValueError: no")


def test_rows_that_moved_most_come_first(tmp_path: Path) -> None:
    put(tmp_path / "runs.db", Made())
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        run = find_run(store, "last")
        seed, child, *others = store.candidates(run.id)
        moved = dict(zip(seed.scores, (0.1, 0.9, 0.5, 0.2), strict=True))
        candidates = [replace(seed, scores=dict.fromkeys(seed.scores, 0.2)), replace(child, scores=moved), *others]
        found = explain_candidate(store, run, candidates, 1, proposals.ProposalHistory(store, run, candidates))
    assert found is not None
    assert [row.row for row in group(found, "Better").rows] == ["1", "2"]
    assert [row.row for row in group(found, "Worse").rows] == ["0"]


def test_a_run_is_explained_up_to_a_number_of_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "runs.db", Made())
    monkeypatch.setattr(explanation, "STEPS_SHOWN", 2)
    last = explained(tmp_path / "runs.db")
    assert (last.best, [step.candidate for step in last.steps], last.steps_omitted) == (4, [3, 4], 2)
    assert explained(tmp_path / "runs.db", until=9).best == 1
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        assert explain(store, find_run(store, "last"), until=2) is None
