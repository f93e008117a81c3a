"""GEPA's own result, read back from a store: what `gepa.optimize` returned, field by field."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch
from gepa.core.result import GEPAResult

from gepa_client import load_result
from gepa_client.errors import JournalError, NoSuchRun
from gepa_client.gepa.row_loaders import Row, RowLoader
from gepa_client.journal.entries import SEARCH, START, CandidateRecord, Entry
from gepa_client.journal.entries import Row as JournalRow
from gepa_client.journal.requests import digest_of, evaluate_key
from gepa_client.journal.store import open_store
from tests.gepa_client.stored_run import RUN_ID, Made

WORDS = ("red", "green", "blue", "pink", "grey", "teal")


class Recorded:
    """A GEPA adapter and callback that writes down what a journal would."""

    propose_new_texts = None

    def __init__(self, train: list[Row], val: list[Row] | None) -> None:
        self.rows: list[JournalRow] = []
        for number, request in enumerate([{}, [row.wire for row in train], val and [row.wire for row in val]]):
            self.rows.append(Entry(START, number, "start", str(number), "start", orjson.dumps(request)))
        self.number = 0
        self.state: Any = None

    def evaluate(self, batch: list[Row], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        known = candidate["rules"].split()
        outputs, scores, objectives = [], [], []
        for row in batch:
            assert isinstance(row.data, dict)
            found = row.data["need"] in known
            score = 1.0 if found else -0.125 * (len(known) % 3)
            output = f"{row.id} of {len(known)}" if len(known) % 4 else None  # GEPA passes over absent outputs
            result = {"status": "ok", "score": score, "output": output, "seconds": 0.1}
            digest = evaluate_key(digest_of(candidate), digest_of(row.wire), row.id, capture_traces).digest
            self.rows.append(Entry(SEARCH, self.number, "evaluate", digest, "", orjson.dumps(result)))
            self.number += 1
            outputs.append(output)
            scores.append(score)
            objectives.append({"found": float(found), "short": 1.0 / (1 + len(known))})
        return EvaluationBatch(outputs, scores, list(batch) if capture_traces else None, objectives, len(batch))

    def make_reflective_dataset(self, _candidate: Any, batch: Any, components: list[str]) -> Any:
        return {name: [{"Feedback": row.data["need"]} for row in batch.trajectories] for name in components}

    def on_iteration_start(self, event: Any) -> None:
        self.state = event["state"]

    def on_valset_evaluated(self, event: Any) -> None:
        index, state = event["candidate_idx"], self.state
        self.rows.append(
            CandidateRecord(
                index=index,
                texts=dict(event["candidate"]),
                parents=list(event["parent_ids"]),
                iteration=event["iteration"],
                number=self.number,
                score=event["average_score"],
                scores={str(row): score for row, score in event["scores_by_val_id"].items()},
                metric_calls=state.num_metric_calls_by_discovery[index] if state is not None else 0,
                objective_scores=dict(state.prog_candidate_objective_scores[index]) if state is not None else None,
            )
        )


def reflection(prompt: Any) -> str:
    """The old text and the words of the feedback, now and then without one."""
    text = str(prompt)
    wanted = [word for word in WORDS if word in text]
    if len(text) % 3 == 0 and len(wanted) > 1:
        wanted = wanted[1:]
    return f"```\n{' '.join(wanted)}\n```"


@pytest.mark.parametrize("own_rows", [True, False], ids=["with validation rows", "validated on training rows"])
def test_the_result_of_a_stored_run_is_what_gepa_returned(tmp_path: Path, own_rows: bool) -> None:
    train = [Row(str(at), {"need": WORDS[at % 6], "at": at}) for at in range(12)]
    val = [Row(str(at), {"need": WORDS[at % 6], "at": 100 + at}) for at in range(7)] if own_rows else None
    adapter = Recorded(train, val)
    trained = RowLoader(train)
    returned: GEPAResult[Any, int] = optimize(
        seed_candidate={"rules": "x y"},
        trainset=trained,  # type: ignore[arg-type]
        valset=RowLoader(val, first_id=len(train)) if val is not None else trained,  # type: ignore[arg-type]
        adapter=adapter,  # type: ignore[arg-type]
        reflection_lm=reflection,
        callbacks=[adapter],  # type: ignore[list-item]
        reflection_minibatch_size=2,
        max_metric_calls=260,
        track_best_outputs=True,
        seed=3,
    )
    assert len(returned.candidates) > 3
    _with_seed_objectives(adapter, returned)
    store = open_store(str(tmp_path / "runs.db"))
    run = Made(config={"seed": 3}).run()
    store.create(run, adapter.rows)
    store.update(run.id, {"counters": {"metric_calls": returned.total_metric_calls}})
    store.close()
    loaded = load_result("last", str(tmp_path / "runs.db"))
    for one in fields(GEPAResult):
        if one.name != "seed":
            assert getattr(loaded, one.name) == getattr(returned, one.name), one.name
    assert loaded.seed == 3
    assert loaded.best_candidate == returned.best_candidate
    assert loaded.to_dict().keys() == returned.to_dict().keys()


def test_a_run_without_a_candidate_has_no_result_yet(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_store(str(path))
    store.create(Made(status="paused").run())
    store.close()
    with pytest.raises(JournalError, match=f"no candidate yet.*evolverpc resume {RUN_ID}"):
        load_result(RUN_ID, str(path))
    with pytest.raises(NoSuchRun):
        load_result("nope", str(path))


def _with_seed_objectives(adapter: Recorded, returned: GEPAResult[Any, int]) -> None:
    """GEPA reports the seed before it has a state; add the objectives afterwards."""
    assert returned.val_aggregate_subscores is not None
    at = next(at for at, row in enumerate(adapter.rows) if isinstance(row, CandidateRecord))
    seed = adapter.rows[at]
    assert isinstance(seed, CandidateRecord)
    adapter.rows[at] = replace(seed, objective_scores=returned.val_aggregate_subscores[0])
