"""The reports of a run, from its events and the explanation of its best candidate."""

from dataclasses import replace
from html import escape

from gepa_client import report
from gepa_client.analysis.proposals import TextChange
from gepa_client.evolution.patches import Words
from gepa_client.journal.run_events import CallRefused, CandidateFound, Finished, StepFailed, Warned
from gepa_client.report.markdown import CHANGED, TEXT
from gepa_client.report.record import RunRecord
from gepa_client.run.output_folder import HostTotals
from tests.gepa_client.example_records import NASTY, candidate, example_record, explanation, started


def test_the_report_begins_with_the_scores_the_end_and_how_certain_the_difference_is() -> None:
    record = example_record(Finished(status="completed", reason="max_metric_calls of 120 is reached", metric_calls=120))
    text, page = report.markdown(record, explanation(record)), report.html(record, explanation(record))
    first = "On 12 validation rows the seed scores 0.25 and the best candidate (2) 0.75."
    assert text.splitlines()[2] == first
    assert f'<p class="story">{first}</p>' in page
    for report_text in (text, page):
        assert (
            "It ended after 120 of 3,000 metric calls and 3.0 s (completed: max_metric_calls of 120 is" in report_text
        )
        assert "Reflection was asked for 9 proposals, of which 2 were kept." in report_text
        assert "1 row is better, 1 is worse and 0 the same with the best candidate: that may be chance" in report_text
        assert report_text.index("Best") < report_text.index("Rows it fixed") < report_text.index("Changes, from the")
        assert (
            report_text.index("Changes, from the") < report_text.index("Other proposals") < report_text.index("The run")
        )


def test_hosts_that_sandboxes_connected_to_are_a_table_with_refused_ones() -> None:
    record = example_record()
    assert "Hosts that" not in report.markdown(record, None) + report.html(record, None)
    record.hosts = {"pypi.org:443": HostTotals(3, 1, 1200, 34000, 2.0)}
    for what, times in (("pypi.org:443", 1), ("10.0.0.1:80", 7), ("a model", 2), ("no-model/POST /v1", 4)):
        record.apply(CallRefused(seconds=1.0, sandbox="s", what=what, reason="no", times=times))
    text, page = report.markdown(record, None), report.html(record, None)
    assert "| `pypi.org:443` | 3 | 1 | 1 | 1,200 | 34,000 |\n| `10.0.0.1:80` | 0 | 0 | 7 | 0 | 0 |\n" in text
    assert "<tr><td>pypi.org:443</td><td>3</td><td>1</td><td>1</td><td>1,200</td><td>34,000</td></tr>" in page
    assert "| `a model` |" not in text


def test_changed_words_are_marked_without_colours() -> None:
    record = example_record()
    text, page = report.markdown(record, explanation(record)), report.html(record, explanation(record))
    assert "```text\na\n[-b-]{+c+}\n```" in text
    assert "```text\na\nc{+\nd+}\n```" in text
    assert "<pre>a\n<del>b</del><ins>c</ins></pre>" in page
    assert "<pre>a\n<ins>c\nd</ins></pre>" in page  # the best text


def test_each_change_has_its_reason_and_the_rows_it_moved() -> None:
    record = example_record()
    text, page = report.markdown(record, explanation(record)), report.html(record, explanation(record))
    step = text[text.index("### 2. Candidate 2") : text.index("## Other proposals")]
    assert step.startswith("### 2. Candidate 2: 0.75 -> 0.625 on validation\n\nFrom the seed and candidate 1, merged;")
    assert "Reflection read the results of 9 training rows. Their scores add up to 1 before the change and 2" in step
    assert "- `Row a value: 0.5 -> 0.75`\n  - input: `a value`\n  - output: `a value` -> `another a value`" in step
    assert "\n  - feedback on components: `a value` (the same before)\n" in step
    assert "  - log:\n\n    ```text\n    a value\n    … 7 characters left out …\n    ```\n" in step
    assert "Better: 9 rows, 1 of them here" in step
    assert "The same, and not perfect: 2 rows, 1 of them here" in step
    assert "3 earlier ones left out" in text
    assert "Why it was proposed" in page
    assert '<strong>Row a value: 0.5 -&gt; 0.75</strong> <span class="first">a value</span>' in page
    assert "<dt>feedback on components</dt>" in page
    assert "<dt>log</dt>" in page
    assert 'a value<span class="cut">[\u2026 7 more characters \u2026]</span>' in page
    assert "<summary>What the model answered about a value</summary>" in page
    assert "<strong>Proposal at 15, from the seed: rejected</strong>" in page


def test_a_run_without_improvement_states_that_and_shows_its_proposals() -> None:
    record = RunRecord()
    for event in (started(), candidate(0, 0.25, [], "a", 0, 12), Finished(status="completed", metric_calls=12)):
        record.apply(event)
    explained = replace(explanation(record), overall=None, steps=(), best=0)
    text, page = report.markdown(record, explained), report.html(record, explained)
    for report_text in (text, page):
        assert "No candidate is better than the seed, which scores 0.25 on 12 validation rows." in report_text
        assert "Proposal at 15, from the seed: rejected" in report_text
        assert "the seed is still the best candidate" in report_text
    assert "None: no candidate is better than the seed." in page
    assert "<svg" not in page


def test_proposals_without_a_change_take_one_line() -> None:
    record = example_record()
    explained = explanation(record)
    [proposal] = explained.others
    empty = [replace(proposal, number=at, texts=(), why="no new text") for at in (20, 25)]
    text = report.markdown(record, replace(explained, others=(proposal, *empty)))
    assert "\n`no new text`: 2 proposals without a change, at 20, 25.\n" in text
    assert text.count("### Proposal at ") == 1


def test_a_report_without_the_store_has_the_best_text_and_states_what_it_lacks() -> None:
    page, text = report.html(example_record(), None), report.markdown(example_record(), None)
    assert "<pre>a\n<ins>c\nd</ins></pre>" in page
    assert "The run\u2019s store could not be read" in page
    assert "```text\na\nc\nd\n```" in text


def test_a_long_text_is_folded_and_a_very_long_one_is_cut() -> None:
    record = RunRecord()
    texts = ["word\n" * 10, "".join(f"line {at}\n" for at in range(100)), "x" * 300_000]
    for index, text in enumerate(texts):
        record.apply(candidate(index, index / 4, [index - 1] if index else [], text, index, 12))
        page = report.html(record, None)
        assert ("The other 70 lines" in page) == (index == 1)
    assert "100,000 characters more are in best_candidate.json" in page
    assert len(page) < 250_000


def test_why_a_run_ended_keeps_its_lines() -> None:
    record = example_record(Finished(status="paused", reason="first line\nsecond line", metric_calls=120))
    assert "- ended:\n\n  ```text\n  paused: first line\n  second line\n  ```\n" in report.markdown(record, None)
    assert "<dd>paused: first line\nsecond line</dd>" in report.html(record, None)


def test_the_page_has_a_chart_and_a_tree_and_loads_nothing() -> None:
    page = report.html(example_record(), None)
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
    explained = explanation(record, NASTY)
    page, text = report.html(record, explained), report.markdown(record, explained)
    assert page.count(escape("<img src=x onerror=alert(1)>")) > 30
    assert "<img" not in page
    assert not {"\x1b", "\u202e"} & (set(page) | set(text))
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
    assert "... and 1,004 characters more: `gepa-client show r1 --json`" in text
    assert len(text) < 150_000
    record.apply(candidate(3, 1.0, [0], "y" * (TEXT + 1), 3, 120))
    assert "... and 1 characters more: `gepa-client show r1 --candidate 3 --full`" in report.markdown(record, None)
