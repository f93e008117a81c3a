"""GEPA's own result, read back from a store: what `gepa.optimize` returned, field by field."""

import json
from pathlib import Path
from typing import Any

import pytest

from gepa_client import load_result
from gepa_client.errors import JournalError
from gepa_client.journal.store import open_store
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.stored_run import RUN_ID, Made
from tests.gepa_client.word_program import Script, rows


def evaluated(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
    """Scores below 0 too, two objectives, and now and then no output, which GEPA passes over."""
    known = candidate["rules"].split()
    found = row["need"] in known
    return {
        "status": "ok",
        "score": 1.0 if found else -0.125 * (len(known) % 3),
        "output": f"{row['text']} of {len(known)}" if len(known) % 4 else None,
        "objective_scores": {"found": float(found), "short": 1.0 / (1 + len(known))},
        "feedback": f"needs {row['need']}",
        "seconds": 0.1,
    }


def test_the_result_of_a_stored_run_is_what_gepa_returned(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    datasets = {"train": rows(12), "val": rows(7, 100)}
    url = serve(Script(seed={"rules": "x y"}, datasets=datasets, evaluate=evaluated))
    flags = ("--max-metric-calls", 260, "--val-fraction", 0, "--seed", 3, "--past-perfect", "--check", "off")
    ended = cli("optimize", url, *flags)
    assert ended.status == 0, ended.stdout + ended.stderr
    returned = json.loads((only_run(tmp_path) / "result.json").read_text())
    loaded = load_result("last", str(tmp_path / "runs" / "evolverpc.db")).to_dict()
    assert len(loaded["candidates"]) > 3
    assert loaded["best_outputs_valset"] and loaded["val_aggregate_subscores"]
    assert json.loads(json.dumps(loaded)) == {name: returned[name] for name in loaded}


def test_a_run_without_a_candidate_has_no_result_yet(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_store(str(path))
    store.create(Made(status="paused").run())
    store.close()
    with pytest.raises(JournalError, match=f"no candidate yet.*evolverpc resume {RUN_ID}"):
        load_result(RUN_ID, str(path))
