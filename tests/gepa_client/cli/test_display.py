"""A run on a terminal: its frame, and its plain lines elsewhere."""

import io
import shlex
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from gepa_client.certificate.certificate import certify
from gepa_client.cli.views.console import echo_next, make_console
from gepa_client.cli.views.event_text import clock, event_text
from gepa_client.cli.views.final_summary import RunSummary, show
from gepa_client.cli.views.live_display import SPARE, LiveDisplay, PlainDisplay, frame
from gepa_client.cli.views.option_names import camel_case, options_named
from gepa_client.journal.run_events import (
    Finished,
    FleetChanged,
    MutationProgress,
    MutationStarted,
    NoProposal,
    Phase,
    Progress,
    RacedOut,
    Reflecting,
    ReflectionRetried,
    Rejected,
    StepFailed,
    TiesCompared,
    Warned,
    race_text,
)
from gepa_client.journal.store import open_store
from gepa_client.journal.tie_entries import TiedCandidate
from gepa_client.report.run_record import RunRecord
from gepa_client.settings.run_config import RunConfig
from tests.gepa_client.certificate.certified_run import Certified
from tests.gepa_client.example_records import NASTY, candidate, code_record, example_record, mutated, refused


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_the_frame_fits_the_terminal_and_shows_what_counts(width: int, height: int) -> None:
    record = example_record(
        Rejected(iteration=3, old_score=1.0, new_score=0.0, reason="worse"), NoProposal(iteration=4, reason="x")
    )
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    latest = [f"something that happened, in many words, {'more and ' * 20}more" for _ in range(LiveDisplay.LINES)]
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


def test_plain_lines_show_candidates_and_warnings_and_count_the_rest() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=80))
    record = example_record()
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


def reflecting(seconds: float) -> RunRecord:
    """A run that began to wait for two proposals 2 s before `seconds`."""
    asked = Reflecting(iteration=4, components=["rules"], seconds=seconds - 2)
    return example_record(Phase(phase="optimizing", seconds=4.0), asked, asked)


def test_a_wait_for_new_texts_is_displayed_with_its_length_component_and_iteration() -> None:
    console = Console(file=io.StringIO(), width=80)
    record = reflecting(seconds=44.0)
    record.seconds = 84.4
    console.print(frame(record, [], 80 - SPARE))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "waiting 0:42 for the program: rules (iteration 4, 2 proposals)" in shown
    record.apply(ReflectionRetried(error="http://127.0.0.1:1/v1: Connection refused"))
    console.print(frame(record, [], 80 - SPARE))
    again = console.file.getvalue().removeprefix(shown).replace("│", "")
    assert "asked again after: http://127.0.0.1:1/v1: Connection refused" in " ".join(again.split())
    shown = console.file.getvalue()
    record.apply(Reflecting(iteration=4, ended=True))
    console.print(frame(record, [], 80 - SPARE))
    assert "waiting" not in console.file.getvalue().removeprefix(shown)


def test_without_a_terminal_a_wait_for_new_texts_is_a_line_every_ten_seconds() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=80))
    record = reflecting(seconds=44.0)
    for second in range(42, 75):
        record.seconds = float(second)
        display.tick(record)
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["52.0", "62.0", "72.0"]
    assert lines[0].endswith("waiting 0:10 for the program: rules (iteration 4, 2 proposals)")


def test_the_clock_counts_hours_only_when_there_are_some() -> None:
    assert (clock(42), clock(3723)) == ("0:42", "1:02:03")


def test_each_change_of_a_server_is_one_line_without_styles_from_its_text() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=200))
    record = example_record()
    url = "http://127.0.0.1:1"
    for event in (
        FleetChanged(kind="joined", url=url, detail="", after=None),
        FleetChanged(kind="resting", url=url, detail=f"lost: {NASTY}", after=0.5),
        FleetChanged(kind="waiting", url=None, detail="", after=600.0),
        FleetChanged(kind="back", url=url, detail="", after=3.0),
        FleetChanged(kind="refused", url=url, detail="another program", after=None),
        FleetChanged(kind="left", url=url, detail="", after=None),
        FleetChanged(kind="warning", url=None, detail="the fleet file cannot be read", after=None),
    ):
        record.apply(event)
        display.event(event, record)
        assert (record.waiting is not None) == (event.kind == "waiting")
    lines = [line.split(" s  ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines[0] == f"{url} joined"
    assert lines[1].startswith(f"{url} is paused: lost: \\u001b[2J[red]x[/]")
    assert lines[2:] == [
        "no server answers, waiting (up to 10:00)",
        f"{url} is back",
        f"{url}: another program",
        f"{url} has left",
        "the fleet: the fleet file cannot be read",
    ]


def test_an_outage_counts_down_and_the_runs_own_name_comes_first() -> None:
    record = example_record(FleetChanged(kind="waiting", url=None, detail="", after=600.0, seconds=10.0))
    record.seconds = 70.5
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(frame(record, [], 110))
    output = console.file
    assert isinstance(output, io.StringIO)
    assert "no server answers, waiting (up to 8:59)" in output.getvalue()
    assert "r1 · tickets" in output.getvalue()


def test_a_proposal_is_left_out_for_the_reason_that_gepa_gives() -> None:
    duplicate = "Duplicate of another candidate selected this iteration"
    left = [event_text(Rejected(iteration=1, old_score=1, new_score=2, reason=reason)) for reason in (duplicate, "x")]
    assert left == [
        f"[dim]proposal not kept: {duplicate}[/]",
        "[dim]proposal not kept: 1 -> 2, sum over its minibatch[/]",
    ]


def lost_race(calls: int = 126) -> Rejected:
    race = RacedOut(compared=100, rows=300, calls=calls, saved=300 - calls, mean=-0.0667, bound=-0.01)
    return Rejected(iteration=1, old_score=1, new_score=2, reason=race_text(100, 300, -0.0667), race=race, seconds=1e4)


def test_a_proposal_that_lost_its_race_is_displayed_whole_on_a_narrow_terminal() -> None:
    out = io.StringIO()
    with LiveDisplay(Console(file=out, width=80, force_terminal=True)) as display:
        display.event(lost_race(), example_record(lost_race()))
    assert "raced out: 0.0667 below the best on 100 of 300 rows" in out.getvalue()
    assert "1 of them raced out" in out.getvalue()


def test_which_of_tied_candidates_was_chosen_is_displayed_whole_on_a_narrow_terminal() -> None:
    out = io.StringIO()
    means = [TiedCandidate(index=index, validation=0.5, fresh=0.5, mean=0.5) for index in (108, 110, 111, 112)]
    ties = TiesCompared(
        best=112, rows=200, validation_rows=300, asked=200, candidates=means, metric_calls=9_000, seconds=1e4
    )
    with LiveDisplay(Console(file=out, width=80, force_terminal=True)) as display:
        display.event(ties, example_record())
    assert "best of 4 candidates on 200 unused rows: candidate 112" in out.getvalue()


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (126, "(100 each in the mean), and 52 more had begun: 252 metric calls, 348 saved"),
        (100, "(100 each in the mean): 200 metric calls, 400 saved"),
        (80, "(100 each in the mean), 40 of them known before: 160 metric calls, 440 saved"),
    ],
)
def test_the_metric_calls_of_lost_races_are_explained_in_a_line_that_is_wrapped_between_words(
    calls: int, expected: str
) -> None:
    out = io.StringIO()
    record = example_record(lost_race(calls), lost_race(calls))
    ended = RunSummary(
        settings=RunConfig.model_construct(),
        run_id="r1",
        store=None,
        output=None,
        record=record,
        finished=Finished(status="completed", metric_calls=600),
        written=[],
        seconds=1.0,
        replayed=False,
        by_hand=False,
    )
    show(ended, Console(file=out, width=80, force_terminal=True, color_system=None))
    lines = out.getvalue().splitlines()
    [at] = [number for number, line in enumerate(lines) if line.startswith("raced out")]
    assert max(map(len, lines[at : at + 2])) <= 80
    whole = " ".join(" ".join(lines[at : at + 3]).split())
    assert f"raced out 2 proposals, by 200 scores of rows {expected} " in whole


def test_servers_and_cost_are_in_the_frame_once_they_are_known() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    record = example_record(Progress(evaluated=112, in_flight=5, up=1, endpoints=3, spent_usd=0.125, seconds=3.0))
    console.print(frame(record, [], 110))
    output = console.file
    assert isinstance(output, io.StringIO)
    assert "1 of 3 servers" in output.getvalue()
    assert "$0.1250" in output.getvalue()


def test_a_paused_server_is_reported_once_despite_further_events() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=200))
    record = example_record()
    for kind, url in ("resting", "a"), ("resting", "a"), ("resting", "b"), ("left", "a"), ("resting", "a"):
        display.event(FleetChanged(kind=kind, url=url, detail="lost", after=0.5), record)  # type: ignore[arg-type]
    lines = [line.split(" s  ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines == ["a is paused: lost", "b is paused: lost", "a has left: lost", "a is paused: lost"]


def test_the_same_failure_is_reported_again_only_after_a_proposal() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=200))
    boom, other = (StepFailed(iteration=1, step="reflection", message=text) for text in ("boom", "other"))
    rejected = Rejected(iteration=3, old_score=1.0, new_score=0.0, reason="worse")
    for event in (boom, boom, other, other, rejected, other):
        display.event(event, example_record())
    lines = [line.split(" failed: ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines == ["boom", "other", "other"]


def asked(number: int, **given: object) -> MutationStarted:
    facts = mutated(number).model_dump(include={"number", "kind", "parents", "parent_branch", "request"})
    return MutationStarted.model_validate(facts | given)


def test_each_change_of_code_is_one_line() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=200))
    record = code_record()
    for event in (
        asked(7, request=f"print {NASTY}\nand more"),
        asked(8, kind="merge", parents=[3, 5]),
        MutationProgress(number=7, message="soon after", seconds=1.0),
        MutationProgress(number=7, message=f"reads {NASTY}", seconds=11.0),
        mutated(7, files=["a.py", "b.py"], lines_added=12, lines_removed=3, summary="printed it"),
        refused(8, reason=f"pytest printed {NASTY}"),
    ):
        record.apply(event)
        display.event(event, record)
    lines = [line.split(" s  ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines[0].startswith("change 7, of candidate 0: print \\u001b[2J[red]x[/]")
    assert lines[1].startswith("change 8, of candidates 3 and 5, merged: ")
    assert lines[2].startswith("change 7: reads \\u001b[2J[red]x[/]")
    assert lines[3] == "change 7 made: +12 -3 in 2 files: printed it"
    assert lines[4].startswith("change 8 rejected at stage check: pytest printed \\u001b[2J")
    assert len(lines) == 5


def test_the_frame_lists_the_mutations_in_progress() -> None:
    record = code_record(asked(7), asked(8), MutationProgress(number=7, message=f"the agent reads {'a ' * 90}"))
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(frame(record, [], 110))
    output = console.file
    assert isinstance(output, io.StringIO)
    [line] = [line for line in output.getvalue().splitlines() if "code" in line]
    assert "2 changes made · 1 refused · 2 being made: the agent reads a a a" in line
    assert len(line) == 110
    assert (
        event_text(record.candidates[2])
        == "candidate 2 from 1: 0.5 [green]best so far[/] [dim](evolve/r1/2@1111111)[/]"
    )


def test_the_frame_of_a_run_that_has_ended_shows_no_second_time() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    console.print(frame(example_record(Finished(status="completed", metric_calls=120, seconds=13.0)), [], 77))
    output = console.file
    assert isinstance(output, io.StringIO)
    last = output.getvalue().splitlines()[-1]
    assert "completed" in last
    assert "0:13" not in last


def test_events_in_the_frame_end_between_two_words() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    console.print(frame(example_record(), [f"    0.5 s  {'wonderful ' * 12}"], 77))
    output = console.file
    assert isinstance(output, io.StringIO)
    [line] = [line for line in output.getvalue().splitlines() if "wonderful" in line]
    assert set(line.strip("│ ").split()[2:-1]) == {"wonderful"}
    assert line.rstrip("│ ").endswith("wonderful …")


def test_a_command_that_is_wider_than_the_terminal_can_be_pasted() -> None:
    words = ["gepa-client", "optimize", "http://127.0.0.1:8000", "--trainset", "my rows.jsonl", "--valset"]
    words += ["data/validation.jsonl", "--max-metric-calls", "9", "--token-file", "token"]
    shown = {}
    for width, terminal in ((80, True), (200, True), (80, False)):
        out = io.StringIO()
        console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
        echo_next(console, shlex.join(words))
        shown[width, terminal] = out.getvalue()
    assert shown[200, True] == shown[80, False] == f"next: {shlex.join(words)}\n"
    lines = shown[80, True].splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith(" \\")
    pasted = f"printf '%s\\n' {shown[80, True].removeprefix('next: ')}"
    assert (
        subprocess.run(["sh", "-c", pasted], check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
        == words
    )


def test_a_command_that_is_wider_than_the_terminal_keeps_its_flags_where_messages_name_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("COLUMNS", "80")
    words = ["gepa-client", "optimize", "http://127.0.0.1:8000", "--trainset", "my rows.jsonl", "--valset"]
    words += ["data/validation.jsonl", "--max-metric-calls", "9", "--token-file", "token"]
    with options_named(camel_case):
        echo_next(make_console(), shlex.join(words))
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(" \\")
    assert second.endswith(" --max-metric-calls 9 --token-file token")


def test_the_reason_of_an_end_is_wrapped_between_words() -> None:
    out = io.StringIO()
    reason = "perfect_score of 1 is reached: candidate 6 has it on all 1,200 validation rows (--past-perfect continues)"
    ended = RunSummary(
        settings=RunConfig.model_construct(),
        run_id="r1",
        store=None,
        output=None,
        record=example_record(),
        finished=Finished(status="completed", reason=reason, metric_calls=600),
        written=[],
        seconds=1.0,
        replayed=False,
        by_hand=False,
    )
    show(ended, Console(file=out, width=80, force_terminal=True, color_system=None))
    lines = out.getvalue().splitlines()
    assert f"{lines[0]} {lines[1]}" == f"completed: {reason}"
    assert len(lines[0]) <= 80


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        (([1.0] * 12, [0.0] * 10 + [1.0] * 2), "no: the test rows show that it is worse than the seed"),
        (([0.0] * 12, [1.0] * 10 + [0.0] * 2), 'evolverpc.load_candidate("'),
    ],
)
def test_a_candidate_that_is_worse_on_the_test_rows_is_not_recommended(
    tmp_path: Path, scores: tuple[list[float], list[float]], text: str
) -> None:
    out = io.StringIO()
    record = example_record()
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        record.certificate = certify(store, Certified(scores=scores).into(store))
    ended = RunSummary(
        settings=RunConfig.model_construct(),
        run_id="r1",
        store=None,
        output=tmp_path / "runs" / "r1",
        record=record,
        finished=Finished(status="completed", metric_calls=600),
        written=["best_candidate.json"],
        seconds=1.0,
        replayed=False,
        by_hand=False,
    )
    show(ended, Console(file=out, width=200, force_terminal=True, color_system=None))
    assert f"{'use it':<15} {text}" in out.getvalue()
