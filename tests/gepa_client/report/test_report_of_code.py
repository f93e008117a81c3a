"""The reports of a run whose code evolved: each change with its reason and its diff, and what came to nothing."""

import pytest

from gepa_client import report
from gepa_client.journal.run_events import Event, Finished
from gepa_client.report.run_record import RunRecord
from tests.gepa_client.example_records import COMMITS, NASTY, code_record, explanation, mutated, refused


def markdown(record: RunRecord) -> str:
    return report.markdown(record, explanation(record))


def test_the_report_shows_the_reason_and_the_diff_of_each_change() -> None:
    text = markdown(code_record())
    first = text[text.index("### 1. Candidate 1") : text.index("### 2. Candidate 2")]
    assert "Why:\n\n```text\nmake it 4 times better\n```" in first
    assert f"Code `evolve/r1/4` at `{COMMITS[1]}`: `+1 -1 in program.py`" in first
    assert "```diff\n--- a/program.py\n+++ b/program.py\n@@ -1 +1 @@\n-old\n+new\n```" in first


def test_what_was_tried_and_refused_has_a_list_of_its_own() -> None:
    text = markdown(code_record())
    last = text[text.index("## What was tried and refused") :]
    assert "### Change 5, of candidate 0\n\n`made, but not kept" in last
    assert "the one that did not help" in last
    assert "### Change 6, of candidate 0\n\n`rejected at stage check: pytest ended with 1`" in last
    assert "```text\nE  assert 1 == 2\n```" in last
    assert "- changes of code: `2 made, 1 refused`" in text
    assert "- best code: `evolve/r1/2@1111111`" in text


@pytest.mark.parametrize("refusal", [True, False])
def test_no_text_of_a_change_ends_its_block(refusal: bool) -> None:
    diff = f"--- a/{NASTY}\n+++ b/{NASTY}\n@@ -1 +1 @@\n-{NASTY}\n+{NASTY}\n```\n</pre>"
    nasty: dict[str, object] = {"request": f"{NASTY}\n# not a heading\n```", "diff": diff}
    event: Event = (
        refused(7, stage=NASTY, reason=NASTY, log_tail=NASTY, **nasty)
        if refusal
        else mutated(7, commit=COMMITS[2], branch=NASTY, summary=NASTY, files=[NASTY], **nasty)
    )
    record = code_record(event, Finished(status="completed", metric_calls=2))
    text = markdown(record)
    assert not {"\x1b", "\u202e"} & set(text)
    inside = ""
    for line in text.splitlines():
        rest = line.lstrip("`")
        fence = line[: len(line) - len(rest)]
        if len(fence) >= 3 and (line == inside or not inside) and "`" not in rest:
            inside = "" if inside else fence
        elif not inside:
            assert "not a heading" not in line
    assert inside == ""
