"""The record of a run, its frame on a terminal and its reports, from events alone."""

import io
import json

import pytest
from rich.console import Console

from gepa_client import report
from gepa_client.cli.display import SPARE, LiveDisplay, PlainDisplay, clock, frame
from gepa_client.report.record import RunRecord
from gepa_client.run import events
from gepa_client.run.events import (
    Budget,
    CandidateFound,
    Event,
    Failure,
    Finished,
    NoProposal,
    Phase,
    Progress,
    Rejected,
    Started,
    Warned,
    from_json,
)
from gepa_client.text import line, plain

NASTY = "\x1b[2J[red]x[/]</pre><img src=x onerror=alert(1)>\u202e```"


def started(**given: object) -> Started:
    facts = {
        "run_id": "r1",
        "url": "http://127.0.0.1:1",
        "program": "tickets",
        "program_version": None,
        "server": "gepa-server 1 (python)",
        "components": ["rules"],
        "splits": {"train": 30, "val": 12},
        "max_metric_calls": 3000,
        "proposer": "the program",
        "config": {},
        "hash_seed": "0",
    }
    return Started.model_validate(facts | given)


def candidate(index: int, score: float, parents: list[int], text: str, best: int, calls: int) -> CandidateFound:
    return CandidateFound(
        seconds=index, index=index, parents=parents, iteration=index, score=score, texts={"rules": text},
        front=[best], best=best, metric_calls=calls,
    )  # fmt: skip


def story(*more: Event) -> RunRecord:
    record = RunRecord()
    for event in (
        started(),
        Phase(phase="seed"),
        candidate(0, 0.25, [], "a\nb", 0, 12),
        Progress(evaluated=12, in_flight=8, seconds=1.0),
        Phase(phase="optimizing", seconds=1.0),
        candidate(1, 0.5, [0], "a\nc", 1, 60),
        candidate(2, 0.75, [0, 1], "a\nc\nd", 2, 110),
        Budget(metric_calls=110, seconds=3.0),
        Progress(evaluated=112, in_flight=5, seconds=3.0),
        *more,
    ):
        record.apply(event)
    return record


def test_events_survive_the_way_through_json() -> None:
    for event in (started(), candidate(1, 0.5, [0], NASTY, 1, 9), Failure(iteration=1, step="s", message=NASTY)):
        assert from_json(event.model_dump_json()) == event


def test_the_headline_is_of_test_rows_only_when_seed_and_best_were_scored_there() -> None:
    record = story()
    headline = record.headline()
    assert headline is not None
    assert (headline.rows, headline.seed, headline.best) == ("12 validation rows", 0.25, 0.75)
    record.apply(events.Tested(index=0, score=0.1, rows=40))
    assert record.headline() == headline
    record.apply(events.Tested(index=2, score=0.6, rows=40))
    tested = record.headline()
    assert tested is not None
    assert (tested.rows, tested.seed, tested.best) == ("40 test rows", 0.1, 0.6)


def test_time_left_follows_from_the_rate_and_the_budget() -> None:
    record = story()
    assert record.rate() == pytest.approx(50.0)
    assert record.seconds_left() == pytest.approx((3000 - 112) / 50.0)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_the_frame_fits_the_terminal_and_shows_what_counts(width: int, height: int) -> None:
    record = story(
        Rejected(iteration=3, old_score=1.0, new_score=0.0, reason="worse"), NoProposal(iteration=4, reason="x")
    )
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    latest = [f"something that happened, told in many words, {'more and ' * 20}more" for _ in range(LiveDisplay.LINES)]
    console.print(frame(record, latest, width - SPARE))
    output = console.file
    assert isinstance(output, io.StringIO)
    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= width - SPARE
    assert len(lines) <= min(height, 16)
    shown = output.getvalue()
    for part in (
        "seed 0.25", "best 0.75", "112 of 3,000 metric calls", "5 in flight", "50.0 examples/s", "about 0:57 left",
        "3 candidates", "1 on the front", "1 rejected", "optimizing",
    ):  # fmt: skip
        assert part in shown


def test_plain_lines_tell_of_candidates_and_warnings_and_count_the_rest() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=80))
    record = story()
    for event in (
        candidate(1, 0.5, [0], "x", 1, 9),
        Rejected(iteration=3, old_score=1.0, new_score=0.0, reason="worse", seconds=2.0),
        Warned(message=NASTY, seconds=2.0),
        Progress(evaluated=20, in_flight=1, seconds=20.0),
        Progress(evaluated=21, in_flight=1, seconds=21.0),
    ):
        display.event(event, record)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert "candidate 1 from 0: 0.5 best so far" in lines[0]
    assert "warning: \\u001b[2J[red]x[/]" in lines[1]
    assert "of 3,000 metric calls" in lines[2]


def test_the_report_shows_each_accepted_candidates_diff_against_each_parent() -> None:
    text = report.markdown(story(Finished(status="finished", metric_calls=120)))
    assert "### Candidate 1, score 0.5" in text
    assert "`rules` against candidate 0:\n\n```diff\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n```" in text
    assert "`rules` against candidate 1:\n\n```diff\n@@ -1,2 +1,3 @@\n a\n c\n+d\n```" in text
    page = report.html(story())
    assert '<span class="add">+c</span>' in page
    assert '<span class="del">-b</span>' in page


def test_the_page_has_a_chart_and_a_tree_and_loads_nothing() -> None:
    page = report.html(story())
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
        Failure(iteration=1, step=NASTY, message=NASTY, details=NASTY),
        Finished(status="failed", reason=NASTY, metric_calls=2),
    ):  # fmt: skip
        record.apply(event)
    page, text = report.html(record), report.markdown(record)
    assert "<img" not in page
    assert not {"\x1b", "\u202e"} & (set(page) | set(text))
    fence = next(line for line in text.splitlines() if line.startswith("````"))
    assert fence.strip("`") in ("text", "diff")


def test_plain_text_keeps_letters_of_every_script_and_shows_what_a_terminal_would_obey() -> None:
    assert plain("Grüße 你好\n\tx") == "Grüße 你好\n\tx"
    assert plain("\x1b]0;x\x07\r\u2028") == "\\u001b]0;x\\u0007\\u000d\\u2028"
    assert json.loads(f'"{plain(chr(0x9B))}"') == "\x9b"
    assert line("a\n  b " + "c" * 100, 10) == "a b ccccc…"


def test_the_clock_counts_hours_only_when_there_are_some() -> None:
    assert (clock(42), clock(3723)) == ("0:42", "1:02:03")
