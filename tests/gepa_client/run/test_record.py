"""The record of a real run: exports, and no secrets."""

import json
from pathlib import Path
from typing import Any

from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.scripted_server import TOKEN
from tests.gepa_client.word_program import Script, records, rows, scored


def test_a_secret_that_the_program_repeats_is_not_stored_and_the_run_can_be_replayed(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    script = Script(seed={"rules": f"never print {TOKEN}"}, datasets={"train": rows(30), "val": rows(12, 100)})

    def leaks(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        result = scored(row, candidate)
        return {**result, "output": f"the key is {TOKEN}", "feedback": f"{TOKEN} {result['feedback']}"}

    def repeats(params: dict[str, Any]) -> dict[str, Any]:
        return {
            "dataset": {
                name: [*found, {"Feedback": f"{TOKEN} red"}] for name, found in records(params)["dataset"].items()
            }
        }

    script.evaluate, script.reflect = leaks, repeats
    script.finalize = lambda _: {"message": f"thank you, {TOKEN}"}
    live = cli("optimize", serve(script), "--max-metric-calls", 80, "--check", "off", "--json")
    assert live.status == 0, live.stdout + live.stderr
    assert len(live.found) > 1
    for path in (tmp_path / "runs").rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes(), path.name
    replayed = cli("replay", "last", "--json")
    assert (replayed.status, replayed.found) == (0, live.found)
    more = cli("resume", "last", "--max-metric-calls", 120, "--json")
    assert more.status == 0, more.stdout


def test_an_imported_run_can_be_replayed_and_resumed(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    script = Script(datasets={"train": rows(30), "val": rows(12, 100)})
    url = serve(script)
    first = cli("optimize", url, "--max-metric-calls", 60, "--check", "off", "--json")
    exported = cli("export", "last", "--output", "run.json")
    assert exported.status == 0, exported.stderr
    assert json.loads((tmp_path / "run.json").read_text())
    imported = cli("import", "run.json", "--store", "elsewhere.db")
    assert imported.status == 0, imported.stdout + imported.stderr
    replayed = cli("replay", "last", "--store", "elsewhere.db", "--json")
    assert (replayed.status, replayed.found) == (0, first.found)
    spent = len(script.calls("evaluate"))
    [own] = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    kept = {path.name: path.read_bytes() for path in own.iterdir()}
    more = cli("resume", "last", url, "--store", "elsewhere.db", "--max-metric-calls", 100, "--json")
    assert more.event("summary")["output"] == f"{own}-2"
    assert {path.name: path.read_bytes() for path in own.iterdir()} == kept
    assert more.status == 0, more.stdout + more.stderr
    assert more.found[: len(first.found)] == first.found
    assert len(script.calls("evaluate")) - spent == (
        more.event("finished")["metric_calls"] - first.event("finished")["metric_calls"]
    )
