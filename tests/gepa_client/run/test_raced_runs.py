"""A whole run with races by the command line: its events, summary, report and record, and its replay and fork."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gepa_client.conftest import Cli, Ran
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.selection.raced_run import TRAIN, VAL, Program, rows

SETTINGS = (
    *("--trainset", "train.jsonl", "--valset", "val.jsonl", "--validation", f"race:{VAL}", "--past-perfect"),
    *("--max-metric-calls", 400, "--check", "off", "--json"),
)


def write_rows(folder: Path) -> None:
    for name, loader in (("train", rows(TRAIN)), ("val", rows(VAL, TRAIN))):
        lines = (json.dumps(row.data) + "\n" for row in loader.rows)  # type: ignore[union-attr]
        (folder / f"{name}.jsonl").write_text("".join(lines))


def found(ran: Ran) -> list[dict[str, Any]]:
    """Return what a run found and rejected, without its times."""
    events = [event for event in ran.events if event["event"] in ("candidate", "rejected")]
    return [{name: value for name, value in event.items() if name != "seconds"} for event in events]


@pytest.fixture
def raced(host: Host, cli: Cli, tmp_path: Path) -> tuple[Program, Ran]:
    """A program, and its run with races."""
    program = Program(lures=TRAIN)
    write_rows(tmp_path)
    ran = cli("optimize", program.serve(host), *SETTINGS)
    assert ran.status == 0, ran.stderr
    return program, ran


def test_a_run_with_races_reports_them_and_is_replayed_and_forked(
    raced: tuple[Program, Ran], cli: Cli, tmp_path: Path
) -> None:
    program, ran = raced
    lost = [event for event in ran.events if event["event"] == "rejected" and event["race"] is not None]
    assert lost
    assert all(event["reason"].startswith("raced out: on ") for event in lost)
    summary = ran.event("summary")
    assert summary["raced_out"] == len(lost)
    saved, calls = (sum(event["race"][name] for event in lost) for name in ("saved", "calls"))
    assert summary["saved_calls"] == saved == VAL * len(lost) - calls
    sent = len(program.server.called("evaluate"))
    assert summary["metric_calls"] == sent

    report = (only_run(tmp_path) / "report.md").read_text()
    assert f"- raced out: `{len(lost)} proposal" in report
    run_id = summary["run_id"]
    assert found(cli("replay", run_id, "--json")) == found(ran)
    assert cli("fork", run_id, "--at", 200).status == 0
    assert found(cli("resume", "last", "--json")) == found(ran)
