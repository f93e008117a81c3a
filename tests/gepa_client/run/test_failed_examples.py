"""Examples that failed in the program are reported with type, rows, candidates and the first traceback."""

import json
from pathlib import Path
from typing import Any

from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.exported_page import page_text
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.word_program import Script, rows, scored

TRACEBACK = 'File "program.py", line 7, in answer\n    amount = row["amount"]\nKeyError: \'amount\''


def fails(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
    """`KeyError` on the row 103 (`val 3`), time-outs on `train 3` and `train 5`."""
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
        "row 3": ("timeout", {"type": "Timeout", "message": "not done within 9 s"}),
        "row 5": ("timeout", {"type": "Timeout", "message": "not done within 60 s"}),
    }
    if row["text"] not in errors:
        return scored(row, candidate)
    status, error = errors[row["text"]]
    return {"status": status, "score": None, "output": None, "seconds": 0.0, "error": error}


def test_failed_examples_are_in_terminal_report_log_events_and_show(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    failing = Script(datasets={"train": rows(12), "val": rows(12, 100)}, evaluate=fails)
    ended = cli("optimize", serve(failing), "--max-metric-calls", 120, "--check", "off")
    assert ended.status == 0, ended.stdout + ended.stderr
    run = only_run(tmp_path)
    seen = [params["batch"][0] for params in failing.calls("evaluate")]
    on_val, *on_train = (
        sum((row["split"], row["id"]) == failed for row in seen)
        for failed in (("val", "3"), ("train", "3"), ("train", "5"))
    )
    failed = on_val + sum(on_train)
    assert on_val > 1
    assert min(on_train) > 0
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    [event] = [event for event in events if event["event"] == "failed_examples"]
    assert (event["failed"], event["evaluated"]) == (failed, len(seen))
    [key_error] = [group for group in event["groups"] if group["type"] == "KeyError"]
    [timeout] = [group for group in event["groups"] if group["type"] == "Timeout"]
    assert (key_error["status"], key_error["count"], key_error["rows"]) == ("program_error", on_val, ["val 3"])
    assert (timeout["status"], timeout["count"]) == ("timeout", sum(on_train))
    assert sorted(timeout["rows"]) == ["train 3", "train 5"]
    messages = {"not done within 9 s": on_train[0], "not done within 60 s": on_train[1]}
    assert (timeout["messages"], timeout["message_count"]) == (messages, 2)
    assert (key_error["row"], key_error["candidate"], key_error["traceback"]) == ("val 3", "0", TRACEBACK)
    kept = {str(event["index"]) for event in events if event["event"] == "candidate"}
    assert key_error["candidates"] == dict.fromkeys(key_error["candidates"], 1)
    assert set(key_error["candidates"]) == kept
    shown = cli("show", "last", "--failures")
    for text in (page_text(run / "report.html"), (run / "run.log").read_text(), shown.stdout):
        for part in ("KeyError", "val 3", 'amount = row["amount"]', "train 5", "not done within 60 s", "with no sum"):
            assert part in text
    assert "2 different messages: not done within " in shown.stdout
    assert f"failed          {failed} of {len(seen)} evaluations: " in ended.stdout
