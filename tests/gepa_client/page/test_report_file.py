"""`report.html`: one file with a run's data, which a browser shows without a network."""

import re
import shlex
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gepa_client.journal import stored_fields
from gepa_client.journal.store import open_store
from gepa_client.page import report_file, search_reader
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.exported_page import page_data, page_text
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.word_program import Script, rows

CHROMIUM = Path("/usr/bin/chromium")
HOSTILE = "</script><script>document.title = 'run'</script><!--\x00\x1b[31m\u202e"

LONE = "half of a pair: \ud800"


def test_the_file_shows_the_run_without_a_network_and_runs_nothing_of_its_texts(
    serve: Serve, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(seed={"rules": ""}, datasets={"train": rows(12), "val": rows(6, 50), "test": rows(6, 80)})
    script.propose = lambda params: {"texts": {"rules": f"{params['candidate']['rules']} red green {HOSTILE}"}}
    script.finalize = lambda _: {"message": HOSTILE}
    ended = cli("optimize", serve(script), "--max-metric-calls", 60, "--check", "off")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert not {"\x1b", "\u202e"} & set(ended.stdout)
    assert "\\u001b[31m" in ended.stdout
    file = only_run(tmp_path) / "report.html"
    data = page_data(file)
    assert data["left_out"] == []
    assert f"evolverpc show {only_run(tmp_path).name}</noscript>" in file.read_text()
    kinds = {event["event"] for event in data["events"]}
    assert {"run", "candidate", "proposal", "summary", "position"} <= kinds
    api = f"/api/runs/{only_run(tmp_path).name}/"
    answers = {path.removeprefix(api): answer for path, answer in data["answers"].items()}
    best = answers["explanation"]["best"]
    assert HOSTILE in page_text(file)
    assert any(line["text"].startswith("the seed scores") for line in answers["history"]["items"])
    for step in answers["explanation"]["steps"]:
        assert answers[f"proposal?at={step['proposal']}"]["prompts"]
        for group in step["groups"]:
            assert group["rows"]
    assert any(path.startswith(f"cell?candidate={best}&") for path in answers)
    found = sorted(event["at"] for event in data["events"] if event["event"] == "candidate")
    monkeypatch.setattr(stored_fields, "PAGE_BYTES", 1)  # each entry is a page of the store
    with closing(open_store(str(tmp_path / "runs" / "evolverpc.db"))) as store:
        earlier = page_data(report_file.exported(store, "runs/evolverpc.db", only_run(tmp_path).name, found[1]))
    assert sorted(event["at"] for event in earlier["events"] if event["event"] == "candidate") == found[:2]
    assert max(line["at"] for line in earlier["answers"][f"{api}history"]["items"]) <= found[1]
    monkeypatch.setattr(search_reader, "ROWS_SENT", 4)
    smaller = bounded(tmp_path, monkeypatch, events=1_000, answers=len(str(answers["explanation"])) + 5_000)
    assert len(smaller["left_out"]) == 2
    assert [len(event["ids"]) for event in smaller["events"] if event["event"] == "rows"] == [4, 2]
    assert [LONE] in [event["warnings"] for event in smaller["events"] if event["event"] == "run"]
    assert f"{api}explanation" in smaller["answers"]
    assert len(smaller["answers"]) < len(answers)
    watched = cli(*shlex.split(smaller["command"])[1:], "--no-open", "--ends-with-stdin")
    assert "page: http://127.0.0.1:" in watched.stdout
    if not CHROMIUM.is_file():
        pytest.skip("there is no /usr/bin/chromium")
    shown = in_chromium(file)
    assert "On 6 test rows the seed scores" in shown
    assert "Changes, from the seed to the best" in shown
    assert "exported file" in shown
    assert "<title>run</title>" not in shown


def bounded(folder: Path, monkeypatch: pytest.MonkeyPatch, *, events: int, answers: int) -> dict[str, Any]:
    """Export the run once more with other bounds, while it is driven; return the data of the file."""
    monkeypatch.setattr(report_file, "LARGEST_EVENTS", events)
    monkeypatch.setattr(report_file, "LARGEST_ANSWERS", answers)
    run, url = only_run(folder), "runs/evolverpc.db"
    monkeypatch.chdir(folder)
    with closing(open_store(url)) as store:
        store.update(run.name, {"counters": {**store.run(run.name).counters, "warnings": [LONE]}})
        assert store.claim(run.name, store.run(run.name).claim, "other", "another process")
        try:
            return page_data(report_file.exported(store, url, run.name))
        finally:
            store.release(run.name, "other")


def in_chromium(file: Path) -> str:
    """Return the document that Chromium makes of a file, with every name unresolvable."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    profile = [f"--user-data-dir={file.parent / 'profile'}", "--virtual-time-budget=2000", "--dump-dom"]
    done = subprocess.run(
        [str(CHROMIUM), *flags, *profile, file.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    return re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
