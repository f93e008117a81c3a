"""A raced run scores candidates on a sample of the validation rows, and compares the best with the seed on the rest."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gepa_client.gepa.rows import Row, RowLoader, rows_left, search_rows
from gepa_client.run.splits import Splits
from gepa_client.run.tie_break import final_rows
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import RACE_ROWS
from tests.gepa_client.conftest import Cli, Ran
from tests.gepa_client.exported_page import page_text
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.selection.raced_run import TRAIN, VAL, Program, rows

SAMPLE = 20
LEFT = VAL - SAMPLE
SETTINGS = (
    *("--trainset", "train.jsonl", "--valset", "val.jsonl", "--validation", f"race:{SAMPLE}", "--past-perfect"),
    *("--max-metric-calls", 700, "--check", "off", "--json"),
)


def write_rows(folder: Path) -> None:
    for name, count, first in (("train", TRAIN, 0), ("val", VAL, TRAIN), ("test", 12, 100)):
        lines = (json.dumps(row.data) + "\n" for row in rows(count, first).rows)
        (folder / f"{name}.jsonl").write_text("".join(lines))


def found(ran: Ran) -> list[dict[str, Any]]:
    """Return what a run found, rejected and compared, without its times."""
    events = [event for event in ran.events if event["event"] in ("candidate", "rejected", "ties_compared", "tested")]
    return [{name: value for name, value in event.items() if name != "seconds"} for event in events]


def test_a_run_searches_on_the_sample_and_compares_the_best_with_the_seed_on_the_rest(
    host: Host, cli: Cli, tmp_path: Path
) -> None:
    program = Program(lures=TRAIN)
    write_rows(tmp_path)
    ran = cli("optimize", program.serve(host), *SETTINGS, "--testset", "test.jsonl")
    assert ran.status == 0, ran.stderr
    folder = only_run(tmp_path)
    result = json.loads((folder / "result.json").read_text())
    scored = [set(scores) for scores in result["val_subscores"]]
    assert len(scored) > 2
    assert len(scored[0]) == SAMPLE
    assert all(each == scored[0] for each in scored)
    compared = ran.event("ties_compared")
    best = compared["best"]
    assert best > 0
    assert (compared["validation_rows"], compared["rows"], compared["validation_left"]) == (SAMPLE, LEFT, LEFT)
    assert [each["index"] for each in compared["candidates"]] == [best, 0]
    assert compared["candidates"][1]["mean"] == pytest.approx(0.5)  # the seed has half of the words
    assert result["best_idx"] == best

    tested = 2 * 12
    summary = ran.event("summary")
    assert summary["metric_calls"] + tested == len(program.server.called("evaluate"))
    lost = [event for event in ran.events if event["event"] == "rejected" and event["race"] is not None]
    assert summary["raced_out"] == len(lost) > 0
    assert all(event["reason"].startswith("lost its race: on ") for event in lost)
    saved, calls = (sum(event["race"][name] for event in lost) for name in ("saved", "calls"))
    assert summary["saved_calls"] == saved == SAMPLE * len(lost) - calls
    report = page_text(folder / "report.html")
    assert f"compared on {LEFT} validation rows that the search left out" in report
    assert f"races\n{len(lost)} proposal" in report
    validation = json.loads((folder / "certificate.json").read_text())["validation"]
    assert (validation["rows"], validation["left"]) == (SAMPLE, LEFT)
    assert validation["estimate"] == pytest.approx(compared["candidates"][0]["fresh"])
    assert validation["low"] <= validation["estimate"] <= validation["high"]
    assert validation["left_seed"] == pytest.approx(compared["candidates"][1]["fresh"])
    assert found(cli("replay", "last", "--json")) == found(ran)
    certificate = folder / "certificate.json"
    assert cli("verify", certificate).status == 0
    with closing(sqlite3.connect(tmp_path / "runs" / "evolverpc.db")) as store, store:
        changed = store.execute(
            "UPDATE entries SET answer = replace(answer, '\"score\":1.0', '\"score\":0.0') "
            "WHERE part LIKE 'ties-%' AND part LIKE '%-0' AND kind = 'evaluate'"
        )
        assert changed.rowcount > 0
    assert cli("verify", certificate).status != 0


def test_the_comparison_takes_at_most_a_tenth_of_the_budget_and_gives_the_scores_of_a_run_without_test_rows(
    host: Host, cli: Cli, tmp_path: Path
) -> None:
    write_rows(tmp_path)
    ran = cli("optimize", Program().serve(host), *SETTINGS, "--max-metric-calls", 300)
    compared = ran.event("ties_compared")
    means = {each["index"]: each["mean"] for each in compared["candidates"]}
    summary = ran.event("summary")
    assert (summary["seed_score"], summary["best_score"]) == (means[0], means[compared["best"]])
    assert 2 * compared["rows"] == 30
    assert "300 is reached, 30 of them kept to compare the best candidates" in ran.event("finished")["reason"]


def test_servers_that_take_more_examples_at_once_than_the_default_sample_race_on_as_many_rows(
    host: Host, cli: Cli, tmp_path: Path
) -> None:
    slots = RACE_ROWS + 5
    (tmp_path / "train.jsonl").write_text((json.dumps({"need": "red", "n": 1}) + "\n") * 5)
    lines = [json.dumps({"need": "pink", "n": at}) + "\n" for at in range(slots + 10)]
    (tmp_path / "val.jsonl").write_text("".join(lines))
    given = ("--trainset", "train.jsonl", "--valset", "val.jsonl", "--validation", "race", "--check", "off", "--json")
    ran = cli("optimize", Program(slots=slots).serve(host), *given, "--max-metric-calls", 60)
    assert ran.event("started")["sampled"] == slots
    assert ran.event("started")["config"]["validation"].startswith(f"race:{slots}:")


@pytest.mark.parametrize(
    ("given", "compared"),
    [({"max_iterations": 3}, SAMPLE), ({"max_metric_calls": 300}, 15), ({"max_metric_calls": 10_000}, LEFT)],
)
def test_as_many_other_rows_compare_as_a_tenth_of_the_calls_pays_for_or_as_the_sample_has(
    given: dict[str, Any], compared: int
) -> None:
    config = RunConfig(url=("http://127.0.0.1:1",), validation=f"race:{SAMPLE}", **given)
    assert final_rows(config, Splits(rows(TRAIN), rows(VAL, TRAIN), None)) == compared


def test_a_sample_is_random_and_follows_from_the_seed() -> None:
    val = RowLoader([Row(str(at), {"n": at}) for at in range(300)], first_id=50)
    samples = [search_rows(val, 40, seed) for seed in (0, 0, 1)]
    first, again, other = (list(each.all_ids()) for each in samples)
    assert first == again == sorted(first)
    assert first != other
    assert set(first) < set(val.all_ids())
    assert [row.id for row in samples[0].fetch(first[:2])] == [str(each - 50) for each in first[:2]]
    assert sorted([*first, *rows_left(val, samples[0])]) == list(val.all_ids())
    assert search_rows(val, 0, 0) is search_rows(val, 300, 0) is val
    assert list(rows_left(val, val)) == []
