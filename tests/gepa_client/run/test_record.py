"""The record of a real run: exports, and no secrets."""

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
