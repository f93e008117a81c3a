"""What ends a run early: money, time, patience, a good score, a program that fails; and scores made elsewhere."""

import re
from pathlib import Path
from typing import Any

import pytest

from gepa_client.journal.entries import SEARCH
from gepa_client.views.final_summary import LINES_SHOWN
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.run_folder import only_run, stored
from tests.gepa_client.scripted_server import TOKEN
from tests.gepa_client.word_program import Script, rows, scored


def priced(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
    return {**scored(row, candidate), "usage": {"cost_usd": 0.01, "input_tokens": 2, "output_tokens": 1}}


def test_money_ends_a_run_between_examples_and_keeps_its_best(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    words.evaluate, words.delay_s, words.max_concurrency = priced, 0.01, 4
    url = serve(words)
    ended = cli("optimize", url, "--max-cost-usd", 0.5, "--max-metric-calls", 5000, "--check", "off", "--json")
    assert ended.status == 0, ended.stdout + ended.stderr
    finished = ended.event("finished")
    assert finished["status"] == "completed"
    assert finished["reason"].startswith("max_cost_usd of $0.5 is reached: $0.5")
    spent = len(words.calls("evaluate"))
    assert 50 <= spent <= 53  # those that were in flight when the fiftieth ended
    assert finished["evaluation_usd"] == pytest.approx(spent * 0.01)
    assert ended.event("summary")["best_score"] > 0
    assert (only_run(tmp_path) / "best_candidate.json").is_file()
    assert words.calls("finalize") == []
    warnings = [event["message"] for event in ended.events if event["event"] == "warning"]
    [warning] = [message for message in warnings if "the test rows" in message]
    assert "not scored" in warning
    assert "resume with a higher limit" in warning
    more = cli("resume", "last", "--max-cost-usd", 0.8, "--json")
    assert more.status == 0, more.stdout
    assert more.found[: len(ended.found)] == ended.found
    assert 80 <= len(words.calls("evaluate")) <= 83
    with stored(tmp_path) as (store, run_id):
        attempts = [attempt for attempt in store.attempts(run_id, SEARCH) if attempt.kind == "evaluate"]
        made = [attempt for attempt in attempts if attempt.outcome != "refused"]  # never sent: the money was spent
        assert len(words.calls("evaluate")) == len(made)
        assert store.run(run_id).counters["spent_usd"] == pytest.approx(len(made) * 0.01)


def test_unknown_prices_are_reported_and_end_a_run_that_only_money_would_end(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    ended = cli("optimize", serve(words), "--max-cost-usd", 0.5, "--check", "off")
    assert ended.status == 1
    assert "no price is known for the program's examples, so `max_cost_usd` cannot hold" in ended.stdout
    assert "give `max_metric_calls`" in ended.stdout
    checked = cli("optimize", serve(words), "--max-cost-usd", 0.5)
    assert checked.status == 2
    assert "came without a price, so `max_cost_usd` cannot hold" in checked.stderr
    only_run(tmp_path)  # none was begun


def test_time_ends_a_run_after_what_is_in_flight_and_counts_only_while_it_runs(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    words.delay_s, words.max_concurrency = 0.05, 4
    arguments = ["--max-metric-calls", 100_000, "--no-skip-perfect-score", "--check", "off", "--json"]
    ended = cli("optimize", serve(words), "--max-seconds", 1.5, *arguments)
    assert ended.status == 0, ended.stdout + ended.stderr
    finished = ended.event("finished")
    assert (finished["status"], finished["reason"]) == ("completed", "max_seconds of 1.5 is reached")
    with stored(tmp_path) as (store, run_id):
        assert 1.4 < store.run(run_id).counters["active_seconds"] < 8.0
        numbers = [entry for entry in store.entries(run_id, SEARCH, limit=10_000) if entry.kind == "evaluate"]
    assert len(numbers) == len(words.calls("evaluate"))
    replayed = cli("replay", "last", "--json")
    assert (replayed.status, replayed.found) == (0, ended.found)
    assert replayed.event("finished")["reason"] == finished["reason"]
    assert cli("resume", "last", "--max-seconds", 1.4).status == 0
    assert len(words.calls("evaluate")) == len(numbers)


def test_a_program_that_fails_on_most_examples_pauses_the_run_with_the_first_traceback_and_no_secret(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    words = Script(datasets={"train": rows(12), "val": rows(200, 100)}, max_concurrency=4, delay_s=0.005)

    def breaks(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        at = int(row["text"].split()[1]) - 100
        if at < 20:
            return scored(row, candidate)
        message = f"'column {at}' is not readable with {TOKEN}"
        traceback = "deeper\n" * LINES_SHOWN + f"File program.py, line {at}\nKeyError"
        log = "noise\n" * LINES_SHOWN + "last words"
        error = {"type": "KeyError", "message": message, "traceback": traceback, "log": log}
        return {"status": "program_error", "score": None, "output": None, "seconds": 0.0, "error": error}

    words.evaluate = breaks
    ended = cli("optimize", serve(words), "--max-metric-calls", 1000, "--failure-stop", 0.5, "--check", "off")
    assert ended.status == 3, ended.stdout + ended.stderr
    assert "paused: 30 of the last 50 examples failed in the program, more than `failure_stop` 0.5" in ended.stdout
    assert re.search(r"KeyError: 'column 2\d' is not readable with \[redacted\]", ended.stdout)
    assert "File program.py, line 2" in ended.stdout and "last words" in ended.stdout, "the last lines are shown"
    assert (ended.stdout.count("deeper"), ended.stdout.count("noise")) == (LINES_SHOWN - 2, LINES_SHOWN - 1)
    assert len(words.calls("evaluate")) <= 54
    assert f"next            evolverpc resume {only_run(tmp_path).name}" in ended.stdout
    with stored(tmp_path) as (store, run_id):
        assert "[redacted]" in str(store.run(run_id).reason)
    for path in (tmp_path / "runs").rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes(), path.name
    words.evaluate = scored
    assert cli("resume", "last", "--max-metric-calls", 200).status == 0
    assert len(words.calls("evaluate")) == 200  # the seed on every validation row, once
