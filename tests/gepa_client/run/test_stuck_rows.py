"""Runs of the command whose program meets a host that fails: for one row, and for all."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.exported_page import page_text
from tests.gepa_client.run.test_resume import program
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.scripted_server import failed
from tests.gepa_client.word_program import scored


def worked(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
    return {**scored(data, candidate), "hosts": {"model.example": {"succeeded": 1}}}


def limited() -> dict[str, Any]:
    hosts = {"model.example": {"failed": 1, "reason": "429"}}
    return failed("infra_error", "RateLimitError", "slow down", hosts=hosts)


def test_a_row_that_always_fails_gets_the_failure_score_and_the_run_ends_as_any_other(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    attempts = Counter[str]()

    def evaluate(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        attempts[f"{data['text']} with {candidate['rules']!r}"] += 1
        return limited() if data["text"] == "row 105" else worked(data, candidate)

    script = program()
    script.evaluate, script.max_concurrency = evaluate, 2
    ended = cli("optimize", serve(script), "--max-metric-calls", 40, "--check", "off")
    assert ended.status == 0, ended.stdout + ended.stderr
    stuck = {key: times for key, times in attempts.items() if key.startswith("row 105")}
    assert set(stuck.values()) == {3}
    stated = "1 example was" if len(stuck) == 1 else f"{len(stuck)} examples were"
    failures = 2 * len(stuck)  # the third one is a result
    retries = f"{stated} tried again after {failures} failures: model.example 429 ({failures})"
    assert (
        "failed 3 times (last: model.example 429) while other rows succeeded"
        in cli("show", "last", "--failures").stdout
    )
    assert retries in page_text(only_run(tmp_path) / "report.html")
    shown = json.loads(cli("show", "last", "--json").stdout)
    assert shown["retried_examples"] == {
        "examples": len(stuck),
        "groups": [{"host": "model.example", "reason": "429", "failures": failures}],
    }
    assert shown["failed_examples"]["failed"] == len(stuck)
    replayed = cli("replay", "last", "--json")
    assert [each["score"] for each in replayed.events if each["event"] == "candidate"] == [
        candidate["score"] for candidate in shown["candidates"]
    ]


def test_a_host_that_is_away_for_all_rows_pauses_the_run_which_then_continues_as_an_undisturbed_one(
    serve: Serve, cli: Cli
) -> None:
    arguments = ("--max-metric-calls", 60, "--check", "off", "--json")
    script = program()
    script.evaluate = worked
    expected = cli("optimize", serve(script), *arguments, "--store", "undisturbed.db").found
    away = False

    def evaluate(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        nonlocal away
        away = away or len(script.calls("evaluate")) == 30
        return limited() if away else worked(data, candidate)

    script = program()
    script.evaluate = evaluate
    url = serve(script)
    paused = cli("optimize", url, *arguments)
    assert paused.status == 3, paused.stdout
    assert "no result after 5 attempts" in paused.event("finished")["reason"]
    script.evaluate = worked
    resumed = cli("resume", "last", "--json")
    assert resumed.status == 0, resumed.stderr
    assert resumed.found == expected
    assert resumed.event("summary")["retried_examples"] >= 1
    assert resumed.event("summary")["failed_examples"] == 0
