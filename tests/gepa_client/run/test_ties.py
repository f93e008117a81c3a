"""Best candidates that tie on validation are compared on fresh training rows, and the run has one best candidate."""

import json
from pathlib import Path
from typing import Any

from gepa_client import load_result
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.exported_page import page_text
from tests.gepa_client.page.page_state import read_run
from tests.gepa_client.run.conftest import not_begun
from tests.gepa_client.run_folder import stored
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
    report = page_text(folder / "report.html")
    assert summary in report
    assert f"the best is candidate {best}" in report
    decided = ("best", "rows", "validation_rows", "validation_left", "candidates")
    assert shown["ties"] == {name: ties[name] for name in decided}
    assert cli("verify", folder / "certificate.json").status == 0
    with stored(tmp_path) as (store, run_id):
        page = read_run(store.url, run_id)
    came_to = page.one("summary") or {}
    assert (came_to["best"], came_to["low"] is None) == (best, False)
    assert cli("replay", "last", "--until", 40, "--output", "earlier").status == 0
    assert certificate["statement"] in report
    assert certificate["statement"] not in page_text(tmp_path / "earlier" / "report.html")
    used = [params for params in words.calls("evaluate") if params["batch"][0]["split"] == "train"]
    fresh = used[-FRESH * len(compared) :]
    before = {params["batch"][0]["id"] for params in used[: -FRESH * len(compared)]}
    chosen = {params["batch"][0]["id"] for params in fresh}
    unused = {str(at) for at in range(60)} - before
    assert chosen < unused
    assert chosen != set(sorted(unused, key=int)[:FRESH]), "in an order by the seed"


def test_the_search_keeps_the_calls_within_the_budget(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    url = serve(program())
    run = not_begun(cli, tmp_path, url, "--tie-rows", FRESH, "--max-metric-calls", 400)
    assert cli("steer", "budget", run, "--max-metric-calls", 130).status == 0
    finished = cli("resume", run, "--json").event("finished")
    assert "130 is reached, 40 of them kept to compare the best candidates" in finished["reason"]
    assert 90 <= finished["metric_calls"] <= 130 + VAL + 6
    refused = cli("optimize", url, "--tie-rows", FRESH, "--max-metric-calls", 40, "--check", "off")
    assert refused.status != 0
    assert "tie_rows keeps 40 metric calls to compare the best candidates" in refused.stdout + refused.stderr
