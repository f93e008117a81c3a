"""Best candidates that tie on validation are compared on fresh training rows, and the run has one best candidate."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gepa_client import load_result
from tests.gepa_client.conftest import TIMEOUT_S, Cli, Ran, Serve, Start
from tests.gepa_client.run_folder import until
from tests.gepa_client.word_program import Script, rows

VAL, TEST, FRESH = 12, 8, 10
SETTINGS = ("--tie-rows", FRESH, "--max-iterations", 8, "--max-metric-calls", 400, "--check", "off")


def number(row: dict[str, Any]) -> int:
    return int(row["text"].split()[1])


def program(**changes: Any) -> Script:
    """Every text but the seed solves half of the validation rows, others by its length; longer ones are better."""

    def evaluate(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        length, at = len(candidate["rules"]), number(row)
        score = min(length, 9) / 10
        if 100 <= at < 200:
            score = float((at + length) % 4 < 2) if length else 0.0
        return {"status": "ok", "score": score, "output": "", "seconds": 0.0, "usage": {"cost_usd": 0.01}}

    def propose(params: dict[str, Any]) -> dict[str, Any]:
        return {"texts": dict.fromkeys(params["components_to_update"], params["candidate"]["rules"] + "x")}

    found = {"train": rows(60), "val": rows(VAL, 100), "test": rows(TEST, 200)}
    return Script(datasets=found, evaluate=evaluate, propose=propose, **changes)


def outcome(ran: Ran) -> list[Any]:
    found = [event for event in ran.events if event["event"] in ("candidate", "ties_compared", "tested")]
    return [{name: value for name, value in event.items() if name != "seconds"} for event in found]


def test_everything_that_reads_the_best_candidate_agrees(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    words = program()
    ran = cli("optimize", serve(words), *SETTINGS, "--output", "out", "--json")
    assert ran.status == 0, ran.stderr
    ties = ran.event("ties_compared")
    assert (ties["rows"], ties["asked"], ties["validation_rows"]) == (FRESH, FRESH, VAL)
    texts = [event["texts"]["rules"] for event in ran.events if event["event"] == "candidate"]
    compared = [each["index"] for each in ties["candidates"]]
    best = max(compared, key=lambda index: len(texts[index]))
    assert len(compared) > 1
    assert (ties["best"], best != compared[0]) == (best, True)
    assert {event["index"] for event in ran.events if event["event"] == "tested"} == {0, best}
    assert ran.event("finished")["metric_calls"] == len(words.calls("evaluate")) - 2 * TEST
    folder = tmp_path / "out"
    result = json.loads((folder / "result.json").read_text())
    certificate = json.loads((folder / "certificate.json").read_text())
    shown = json.loads(cli("show", "last", "--json").stdout)
    loaded = load_result("last", str(tmp_path / "runs" / "evolverpc.db"))
    assert {result["best_idx"], certificate["candidate"], shown["best_index"], shown["best"]["index"]} == {best}
    assert (loaded.best_idx, loaded.total_metric_calls) == (best, ran.event("finished")["metric_calls"])
    assert json.loads((folder / "best_candidate.json").read_text()) == {"rules": texts[best]}
    assert words.calls("finalize")[0]["best_candidate"] == {"rules": texts[best]}
    summary = f"were compared on {FRESH} fresh rows; means over {FRESH + VAL} rows: "
    report = (folder / "report.md").read_text()
    assert summary in report
    assert f"the best is candidate {best}" in report
    decided = ("best", "rows", "validation_rows", "validation_left", "candidates")
    assert shown["ties"] == {name: ties[name] for name in decided}
    assert cli("verify", folder / "certificate.json").status == 0
    used = [params for params in words.calls("evaluate") if params["batch"][0]["split"] == "train"]
    fresh = used[-FRESH * len(compared) :]
    before = {params["batch"][0]["id"] for params in used[: -FRESH * len(compared)]}
    assert not before & {params["batch"][0]["id"] for params in fresh}


@pytest.mark.long
def test_a_run_that_ended_between_and_was_killed_there_is_the_undisturbed_one(
    serve: Serve, cli: Cli, start: Start
) -> None:
    whole = cli("optimize", serve(program()), *SETTINGS, "--store", "whole.db", "--json")
    searched = whole.event("finished")["metric_calls"] - FRESH * len(whole.event("ties_compared")["candidates"])
    words = program(max_concurrency=1)
    limited = cli("optimize", serve(words), *SETTINGS, "--max-cost-usd", 0.01 * (searched + 3) - 0.005, "--json")
    assert "(while the best candidates were compared)" in limited.event("finished")["reason"]
    made = len(words.calls("evaluate"))
    words.delay_s = 0.2
    process = start("resume", "last", "--max-cost-usd", 50)
    until(lambda: len(words.calls("evaluate")) > made + 2)
    [driver] = subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(process.pid)], text=True).split()
    os.kill(int(driver), signal.SIGKILL)
    process.communicate(timeout=TIMEOUT_S)
    words.delay_s = 0.0
    resumed = cli("resume", "last", "--json")
    assert resumed.status == 0, resumed.stderr
    replayed = cli("replay", "last", "--json")
    assert outcome(whole) == outcome(resumed) == outcome(replayed)
    assert replayed.event("finished")["metric_calls"] == whole.event("finished")["metric_calls"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": rows(60)}, "tie_rows has no effect: the validation rows are the training rows"),
        pytest.param({"train": rows(5), "val": rows(VAL, 100)}, "no training row is fresh", marks=pytest.mark.long),
    ],
)
def test_a_run_without_fresh_rows_states_it(serve: Serve, cli: Cli, changes: dict[str, Any], message: str) -> None:
    words = program()
    words.datasets = changes
    ran = cli("optimize", serve(words), *SETTINGS, "--val-fraction", 0, "--json") if "val" not in changes else (
        cli("optimize", serve(words), *SETTINGS, "--json")
    )  # fmt: skip
    assert ran.status == 0, ran.stderr
    assert any(message in event["message"] for event in ran.events if event["event"] == "warning")
    assert not [event for event in ran.events if event["event"] == "ties_compared"]


def test_the_search_keeps_the_calls_within_the_budget(serve: Serve, cli: Cli) -> None:
    url = serve(program())
    ran = cli("optimize", url, "--tie-rows", FRESH, "--max-metric-calls", 130, "--check", "off", "--json")
    assert ran.status == 0, ran.stderr
    finished = ran.event("finished")
    assert "130 is reached, 40 of them kept to compare the best candidates" in finished["reason"]
    assert 90 <= finished["metric_calls"] <= 130 + VAL + 6
    refused = cli("optimize", url, "--tie-rows", FRESH, "--max-metric-calls", 40, "--check", "off")
    assert refused.status != 0
    assert "tie_rows keeps 40 metric calls to compare the best candidates" in refused.stdout + refused.stderr
