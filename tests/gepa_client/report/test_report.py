"""The reports of a run, from its events and the explanation of its best candidate."""

from dataclasses import replace

from gepa_client import report
from gepa_client.analysis.proposals import TextChange
from gepa_client.evolution.patches import Words
from gepa_client.journal.run_events import CallRefused, CandidateFound, Finished, StepFailed, Warned
from gepa_client.report.markdown import CHANGED, TEXT
from gepa_client.report.run_record import RunRecord
from gepa_client.run.output_folder import HostTotals
from tests.gepa_client.example_records import NASTY, candidate, example_record, explanation, started
from tests.gepa_client.exported_page import shown_text


def test_the_report_begins_with_the_scores_the_end_and_how_certain_the_difference_is() -> None:
    record = example_record(Finished(status="completed", reason="max_metric_calls of 120 is reached", metric_calls=120))
    text, page = report.markdown(record, explanation(record)), shown_text(record, explanation(record))
    first = "On 12 validation rows the seed scores 0.25 and the best candidate (2) 0.75."
    assert text.splitlines()[2] == first
    assert page.startswith(f"summary\n{first}\n")
    for report_text in (text, page):
        assert (
            "It ended after 120 of 3,000 metric calls and 3.0 s (completed: max_metric_calls of 120 is" in report_text
        )
        assert "The program made 9 proposals, of which 2 were kept." in report_text
        assert "1 row is better, 1 is worse and 0 the same with the best candidate: that may be chance" in report_text
    parts = ("Best", "Rows it fixed", "Changes, from the", "Other proposals", "The run")
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)


def test_hosts_that_sandboxes_connected_to_are_a_table_with_refused_ones() -> None:
    record = example_record()
    assert "Hosts that" not in report.markdown(record, None) + shown_text(record, None)
    record.hosts = {"pypi.org:443": HostTotals(3, 1, 1200, 34000, 2.0)}
    for what, times in (("pypi.org:443", 1), ("10.0.0.1:80", 7), ("a model", 2), ("no-model/POST /v1", 4)):
        record.apply(CallRefused(seconds=1.0, sandbox="s", what=what, reason="no", times=times))
    text, page = report.markdown(record, None), shown_text(record, None)
    assert "| `pypi.org:443` | 3 | 1 | 1 | 1,200 | 34,000 |\n| `10.0.0.1:80` | 0 | 0 | 7 | 0 | 0 |\n" in text
    assert "\npypi.org:443\n3\n1\n1\n1,200\n34,000\n" in page
    assert "| `a model` |" not in text


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
    explained = explanation(record, NASTY)
    text = report.markdown(record, explained)
    assert not {"\x1b", "\u202e"} & set(text)
    inside = ""
    for line in text.splitlines():
        rest = line.lstrip("`")
        fence = line[: len(line) - len(rest)]
        if len(fence) >= 3 and (line == inside or not inside) and "`" not in rest:
            inside = "" if inside else fence
        elif not inside and "<img" in line:
            assert "\\<img" in line or line.count("`") >= 2, line
    assert inside == ""


def test_long_texts_are_cut_and_the_command_that_shows_the_rest_is_named() -> None:
    record = example_record()
    explained = explanation(record)
    words = (Words("add", "x" * (CHANGED + 1000)),)
    own = next(each for each in explained.others if each.mutation is None)
    long = replace(own, texts=(TextChange("rules", words),))
    text = report.markdown(record, replace(explained, others=(long,) * 50))
    assert "... and 1,004 characters more: `evolverpc show r1 --json`" in text
    assert len(text) < 150_000
    record.apply(candidate(3, 1.0, [0], "y" * (TEXT + 1), 3, 120))
    assert "... and 1 characters more: `evolverpc show r1 --candidate 3 --full`" in report.markdown(record, None)


def test_training_rows_that_select_the_candidates_are_not_called_validation_rows() -> None:
    record = example_record(
        started(splits={"train": 12, "val": 12}, training_only=True), Finished(status="completed", metric_calls=120)
    )
    why = explanation(record)
    assert why.overall is not None
    why = replace(
        why,
        overall=replace(why.overall, training_only=True),
        steps=tuple(replace(step, training_only=True) for step in why.steps),
    )
    for text in (report.markdown(record, why), shown_text(record, why)):
        assert "On 12 training rows the seed scores 0.25 and the best candidate (2) 0.75." in text
        assert "The training rows selected the candidate, and it was made from their results, so new rows may" in text
        assert "-> 0.625 on 2 training rows" in text
        assert "12 train (no validation rows: they select the candidates too)" in text
        assert "validation" not in text.replace("no validation rows", "")
