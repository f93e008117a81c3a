"""The reports of a run, from its events alone."""

from gepa_client import report
from gepa_client.journal.run_events import CandidateFound, Finished, StepFailed, Warned
from gepa_client.report.record import RunRecord
from tests.gepa_client.example_records import NASTY, example_record, started


def test_the_report_shows_each_accepted_candidates_diff_against_each_parent() -> None:
    text = report.markdown(example_record(Finished(status="completed", metric_calls=120)))
    assert "### Candidate 1, score 0.5" in text
    assert "`rules` against candidate 0:\n\n```diff\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n```" in text
    assert "`rules` against candidate 1:\n\n```diff\n@@ -1,2 +1,3 @@\n a\n c\n+d\n```" in text
    page = report.html(example_record())
    assert '<span class="add">+c</span>' in page
    assert '<span class="del">-b</span>' in page


def test_why_a_run_ended_keeps_its_lines() -> None:
    record = example_record(Finished(status="paused", reason="first line\nsecond line", metric_calls=120))
    assert "- ended:\n\n  ```text\n  paused: first line\n  second line\n  ```\n" in report.markdown(record)
    assert "<dd>paused: first line\nsecond line</dd>" in report.html(record)


def test_the_page_has_a_chart_and_a_tree_and_loads_nothing() -> None:
    page = report.html(example_record())
    assert page.count("<svg") == 2
    assert page.count("<circle") == 3
    assert "2: 0.75" in page
    assert not any(part in page for part in ("<script", 'http-equiv="refresh', "src=", "@import", "url("))


def test_what_others_wrote_cannot_end_its_place_in_a_report() -> None:
    record = RunRecord()
    for event in (
        started(program=NASTY, server=NASTY, components=[NASTY], run_id="r"),
        CandidateFound(
            index=0, parents=[], iteration=0, score=0.0, texts={NASTY: NASTY}, front=[0], best=0, metric_calls=1
        ),
        CandidateFound(
            index=1, parents=[0], iteration=1, score=0.5, texts={NASTY: NASTY + "\n" + NASTY}, front=[1], best=1,
            metric_calls=2,
        ),
        Warned(message=NASTY),
        StepFailed(iteration=1, step=NASTY, message=NASTY, details=NASTY),
        Finished(status="failed", reason=NASTY, metric_calls=2),
    ):  # fmt: skip
        record.apply(event)
    page, text = report.html(record), report.markdown(record)
    assert "<img" not in page
    assert not {"\x1b", "\u202e"} & (set(page) | set(text))
    fence = next(line for line in text.splitlines() if line.startswith("````"))
    assert fence.strip("`") in ("text", "diff")
