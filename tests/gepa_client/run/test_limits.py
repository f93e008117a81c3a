"""What ends a run early: money, time, patience, a good score, a program that fails; and scores made elsewhere."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gepa_client.journal.entries import SEARCH
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.run_folder import only_run, stored
from tests.gepa_client.scripted_server import Host
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


def test_tokens_by_model_are_priced_so_that_a_limit_of_money_holds(serve: Serve, cli: Cli, words: Script) -> None:
    def counted(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        taken = {"calls": 1, "input_tokens": 1000, "output_tokens": 1000}
        return {**scored(row, candidate), "usage": {"calls": 1, "models": {"my-model": taken}}}

    words.evaluate, words.max_concurrency = counted, 4
    arguments = ("--max-cost-usd", 0.2, "--model-prices", '{"my-model": [2, 3]}', "--check", "off", "--json")
    ended = cli("optimize", serve(words), *arguments)
    assert ended.status == 0, ended.stdout + ended.stderr
    finished = ended.event("finished")
    assert finished["reason"].startswith("max_cost_usd of $0.2 is reached")
    assert 40 <= len(words.calls("evaluate")) <= 43
    assert finished["unpriced"] == {}


def test_unknown_prices_are_reported_and_end_a_run_that_only_money_would_end(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    ended = cli("optimize", serve(words), "--max-cost-usd", 0.5, "--check", "off")
    assert ended.status == 1
    assert "no price is known for the program's examples, so --max-cost-usd cannot hold" in ended.stdout
    assert "give --max-metric-calls N" in ended.stdout
    run = only_run(tmp_path).name
    assert f"next            evolverpc resume {run} --max-metric-calls 1000\n" in ended.stdout
    checked = cli("optimize", serve(words), "--max-cost-usd", 0.5)
    assert checked.status == 2
    assert "came without a price, so --max-cost-usd cannot hold" in checked.stderr
    assert "--max-metric-calls 1000 --max-cost-usd 0.5\n" in checked.stderr
    assert only_run(tmp_path).name == run


def test_time_ends_a_run_after_what_is_in_flight_and_counts_only_while_it_runs(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    words.delay_s, words.max_concurrency = 0.05, 4
    arguments = ["--max-metric-calls", 100_000, "--no-skip-perfect-score", "--check", "off", "--json"]
    ended = cli("optimize", serve(words), "--max-seconds", 1.5, *arguments)
    assert ended.status == 0, ended.stdout + ended.stderr
    finished = ended.event("finished")
    assert (finished["status"], finished["reason"]) == ("completed", "max_seconds of 1.5 is reached")
    assert finished["seconds"] < 10.0
    with stored(tmp_path) as (store, run_id):
        assert 1.4 < store.run(run_id).counters["active_seconds"] < 8.0
        numbers = [entry for entry in store.entries(run_id, SEARCH, limit=10_000) if entry.kind == "evaluate"]
    assert len(numbers) == len(words.calls("evaluate"))
    replayed = cli("replay", "last", "--json")
    assert (replayed.status, replayed.found) == (0, ended.found)
    assert replayed.event("finished")["reason"] == finished["reason"]
    assert cli("resume", "last", "--max-seconds", 1.4).status == 0
    assert len(words.calls("evaluate")) == len(numbers)


def test_why_a_stopper_ended_a_run_is_in_terminal_events_and_report(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    ended = cli("optimize", serve(words), "--target-score", "0.3", "--max-metric-calls", 5000, "--check", "off")
    assert ended.status == 0, ended.stdout + ended.stderr
    [line] = [line for line in ended.stdout.splitlines() if line.startswith("completed: ")]
    assert re.fullmatch(r"completed: target_score of 0\.3 is reached: the best score is 0\.\d+", line)
    run = only_run(tmp_path)
    last_event = json.loads((run / "events.jsonl").read_text().splitlines()[-1])
    assert (last_event["event"], last_event["reason"]) == ("finished", line.removeprefix("completed: "))
    assert f"- ended: `{line}`" in (run / "report.md").read_text()


def test_a_program_that_fails_on_most_examples_pauses_the_run_with_the_first_traceback(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    words = Script(datasets={"train": rows(12), "val": rows(200, 100)}, max_concurrency=4, delay_s=0.005)

    def breaks(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        at = int(row["text"].split()[1]) - 100
        if at < 20:
            return scored(row, candidate)
        error = {"type": "KeyError", "message": f"'column {at}'", "traceback": f"File program.py, line {at}\nKeyError"}
        return {"status": "program_error", "score": None, "output": None, "seconds": 0.0, "error": error}

    words.evaluate = breaks
    ended = cli("optimize", serve(words), "--max-metric-calls", 1000, "--failure-stop", 0.5, "--check", "off")
    assert ended.status == 3, ended.stdout + ended.stderr
    assert "paused: 30 of the last 50 examples failed in the program, more than --failure-stop 0.5" in ended.stdout
    assert "KeyError: 'column 2" in ended.stdout
    assert "File program.py, line 2" in ended.stdout
    assert len(words.calls("evaluate")) <= 54
    assert f"next            evolverpc resume {only_run(tmp_path).name}" in ended.stdout
    words.evaluate = scored
    assert cli("resume", "last", "--max-metric-calls", 200).status == 0
    assert len(words.calls("evaluate")) == 200  # the seed on every validation row, once


def test_scores_may_be_made_by_another_endpoint(serve: Serve, host: Host, cli: Cli, tmp_path: Path) -> None:
    words = Script(datasets={"train": rows(30), "val": rows(12, 100), "test": rows(6, 200)})
    words.evaluate = lambda row, candidate: {
        "status": "rollout",
        "score": None,
        "output": {"need": row["need"], "rules": candidate["rules"]},
        "seconds": 0.25,
        "usage": {"cost_usd": 0.01},
    }

    def judge(params: dict[str, Any]) -> dict[str, Any]:
        results = []
        for result in params["results"]:
            output = result["output"]
            right = output["need"] in output["rules"].split()
            results.append(
                {
                    "status": "ok",
                    "score": float(right),
                    "output": None,
                    "feedback": f"needs {output['need']}",
                    "seconds": 0.5,
                    "usage": {"cost_usd": 0.001},
                }
            )
        return {"results": results}

    judging = Script(capabilities=("scoring",), replies={"score": judge})
    url, judge_url = serve(words), serve(judging)
    ended = cli("optimize", url, "--score-with", judge_url, "--max-metric-calls", 120, "--check", "off", "--json")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert ended.event("summary")["best_score"] > 0.1
    assert not [event for event in ended.events if event["event"] == "warning" and "never asked" in event["message"]]
    count = len(words.calls("evaluate"))
    assert len(judging.calls("score")) == count
    assert judging.calls("evaluate") == []
    assert all("rules" not in json.dumps(params.get("candidate", {})) for params in judging.calls("score"))
    assert ended.event("finished")["evaluation_usd"] == pytest.approx(count * 0.011)
    host.stop(url)
    host.stop(judge_url)
    replayed = cli("replay", "last", "--json")
    assert (replayed.status, replayed.found) == (0, ended.found)
    with stored(tmp_path) as (store, run_id):
        kinds = {spent.kind: spent.attempts for spent in store.spending(run_id)}
    assert kinds["score"] == kinds["evaluate"] == count
