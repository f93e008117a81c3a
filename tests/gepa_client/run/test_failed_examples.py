"""Examples that failed in the program are reported with type, rows, candidates and the first traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.exported_page import page_text
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.word_program import Script, rows, scored

TRACEBACK = 'File "program.py", line 7, in answer\n    amount = row["amount"]\nKeyError: \'amount\''


def fails(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
    """`KeyError` on the row 103 (`val 3`), a time-out on row 5 (`train 5`)."""
    errors = {
        "row 103": (
            "program_error",
            {
                "type": "KeyError",
                "message": "'amount'",
                "traceback": TRACEBACK,
                "log": "line\n" * 50 + "row with no sum\n",
            },
        ),
        "row 5": ("timeout", {"type": "Timeout", "message": "not done within 60 s"}),
    }
    if row["text"] not in errors:
        return scored(row, candidate)
    status, error = errors[row["text"]]
    return {"status": status, "score": None, "output": None, "seconds": 0.0, "error": error}


@pytest.fixture
def failing() -> Script:
    return Script(datasets={"train": rows(12), "val": rows(12, 100)}, evaluate=fails)


def groups(event: dict[str, Any]) -> dict[str, tuple[str, int, list[str]]]:
    return {group["type"]: (group["status"], group["count"], group["rows"]) for group in event["groups"]}


def test_failed_examples_are_in_terminal_report_log_events_and_show(
    serve: Serve, cli: Cli, failing: Script, tmp_path: Path
) -> None:
    ended = cli("optimize", serve(failing), "--max-metric-calls", 120, "--check", "off")
    assert ended.status == 0, ended.stdout + ended.stderr
    run = only_run(tmp_path)
    seen = [params["batch"][0] for params in failing.calls("evaluate")]
    on_val, on_train = (
        sum((row["split"], row["id"]) == failed for row in seen) for failed in (("val", "3"), ("train", "5"))
    )
    assert on_val > 1
    assert on_train > 0
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    [event] = [event for event in events if event["event"] == "failed_examples"]
    assert (event["failed"], event["evaluated"]) == (on_val + on_train, len(seen))
    assert groups(event) == {
        "KeyError": ("program_error", on_val, ["val 3"]),
        "Timeout": ("timeout", on_train, ["train 5"]),
    }
    [key_error] = [group for group in event["groups"] if group["type"] == "KeyError"]
    assert (key_error["row"], key_error["candidate"], key_error["traceback"]) == ("val 3", "0", TRACEBACK)
    kept = {str(event["index"]) for event in events if event["event"] == "candidate"}
    assert key_error["candidates"] == dict.fromkeys(key_error["candidates"], 1)
    assert set(key_error["candidates"]) == kept
    shown = cli("show", "last", "--failures")
    for text in (page_text(run / "report.html"), (run / "run.log").read_text(), shown.stdout):
        for part in ("KeyError", "val 3", 'amount = row["amount"]', "train 5", "not done within 60 s", "with no sum"):
            assert part in text
    assert f"failed          {on_val + on_train} of {len(seen)} evaluations: " in ended.stdout


def test_the_messages_of_a_type_are_counted_and_rows_of_a_rejected_proposal_are_named_with_their_split(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    def run(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        if "broken" not in candidate["rules"]:
            return scored(row, candidate)
        message = "'account'" if row["text"] in ("row 1", "row 2") else "'returns'"
        error = {"type": "KeyError", "message": message}
        return {"status": "program_error", "score": None, "output": None, "seconds": 0.0, "error": error}

    script = Script(
        seed={"rules": "red"},
        datasets={"train": rows(6), "val": rows(6, 100)},  # ids of both splits are the same
        evaluate=run,
        propose=lambda _params: {"texts": {"rules": "broken"}},
    )
    limits = ("--max-metric-calls", 12, "--failure-stop", 1, "--reflection-minibatch-size", 6)
    ended = cli("optimize", serve(script), "--check", "off", *limits)
    assert ended.status == 0, ended.stdout + ended.stderr
    events = [json.loads(line) for line in (only_run(tmp_path) / "events.jsonl").read_text().splitlines()]
    [group] = next(event for event in events if event["event"] == "failed_examples")["groups"]
    assert group["messages"] == {"'returns'": 4, "'account'": 2}
    assert group["message_count"] == 2
    assert sorted(group["rows"]) == [f"train {number}" for number in range(6)]
    listed = cli("show", "last", "--failures")
    assert "2 different messages: 'returns' (4 times), 'account' (2 times)" in listed.stdout
