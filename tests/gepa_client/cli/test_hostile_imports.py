"""A hostile export file chooses neither the servers of a run nor where it writes, and breaks no command."""

import json
from pathlib import Path
from typing import Any

import pytest

from gepa_client.journal.store import open_store
from gepa_client.run.export_import import export_run
from tests.gepa_client.conftest import Cli, Ran
from tests.gepa_client.stored_run import IDENTITY, RUN_ID, Made, put


def exported(tmp_path: Path, **made: Any) -> dict[str, Any]:
    """A run as a file from another machine holds it."""
    put(tmp_path / "elsewhere.db", Made(identity=IDENTITY, **made))
    store = open_store(str(tmp_path / "elsewhere.db"))
    try:
        document: dict[str, Any] = json.loads("".join(export_run(store, RUN_ID)))
        return document
    finally:
        store.close()


def taken(cli: Cli, tmp_path: Path, document: dict[str, Any]) -> Ran:
    (tmp_path / "file.json").write_text(json.dumps(document))
    return cli("import", "file.json")


def test_an_imported_run_can_be_listed_shown_and_replayed_without_a_server(cli: Cli, tmp_path: Path) -> None:
    assert taken(cli, tmp_path, exported(tmp_path)).status == 0
    assert cli("runs").status == 0
    assert cli("show", "last").status == 0
    replayed = cli("replay", "last")
    assert "Traceback" not in replayed.stdout + replayed.stderr
    assert "URL" not in replayed.stderr
    forked = cli("fork", "last", "--at", 1)
    assert forked.status == 2
    assert "no URL: the run's record names no server" in forked.stderr
    assert cli("fork", "last", "http://127.0.0.1:9", "--at", 1).status == 0


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"a": 1' + "0" * 5000 + "}"])
def test_invalid_json_is_an_error_on_one_line(cli: Cli, tmp_path: Path, text: str) -> None:
    (tmp_path / "file.json").write_text(text)
    refused = cli("import", "file.json")
    assert refused.status == 2
    assert refused.stderr.startswith("error: file.json: not ")
    assert len(refused.stderr.splitlines()) == 1


def test_one_damaged_run_hides_no_other_from_the_list(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "evolverpc.db"
    put(path, Made(), Made(run_id="20260102-030405-2222"))
    store = open_store(str(path))
    wrong = {"metric_calls": "many", "iteration": [1], "spent_usd": "x", "seed_score": None}
    store.update(RUN_ID, {"counters": wrong, "best": {"foo": 1}, "config": {"max_metric_calls": "x"}})
    store.update("20260102-030405-2222", {"counters": {**wrong, "seed_score": "x", "unpriced": 3}, "best": {}})
    store.close()
    listed = cli("runs")
    assert listed.status == 0, listed.stderr
    assert RUN_ID in listed.stdout
    assert "?/?" in listed.stdout
    assert listed.stdout.count("0.00 -> ?") == 2  # the seed's score is that of its candidate
    assert len(cli("runs", "--json").stdout.splitlines()) == 2
