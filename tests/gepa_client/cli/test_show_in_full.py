"""`show` on a terminal is short; `--full` cuts nothing; it explains why a candidate is better."""

import json

import pytest

from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.word_program import Script, scored


def test_the_rows_that_a_candidate_fixed_why_it_was_proposed_and_what_the_program_wrote_are_shown_without_secrets(
    serve: Serve, cli: Cli, words: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    words.evaluate = lambda row, candidate: (
        scored(row, candidate) | {"log": "".join(f"line {number} of {row['need']}, {secret}\n" for number in range(7))}
    )
    assert cli("optimize", serve(words), "--max-metric-calls", 200, "--check", "off").status == 0
    shown, full = cli("show", "last").stdout, cli("show", "last", "--full").stdout
    assert (
        "Better, against candidate 0: 12 rows, the first 3\nval 0: 0 -> 1\n  input text: row 100 need: grey\n" in shown
    )
    assert "  output grey missing -> grey found\n  feedback needs grey\n" in shown
    lines = "".join(f"    line {number} of grey, [redacted]\n" for number in range(7))
    assert f"  log\n{lines}" in full
    cut = "".join(lines.splitlines(keepends=True)[:5])
    assert f"  log\n{cut}    ... and 2 lines more; --full shows them\n" in shown
    one = cli("show", "last", "--candidate", 1).stdout
    assert one[one.index("why it was proposed\n") :].count("\ntrain ") >= 3
    found = json.loads(cli("show", "last", "--json").stdout)
    assert [each["candidate"] for each in found["proposals"] if each["outcome"] == "kept"] == [
        *range(1, len(found["candidates"]))
    ]
    assert (found["summary"]["certificate"][0]["label"], found["certificate"]["verdict"]) == ("verdict", "improved")
    assert found["explanation"]["overall"]["groups"][0]["rows"][0]["after"]["log"]["text"].startswith("line 0 of grey")
