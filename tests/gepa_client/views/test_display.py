"""A run on a terminal: its frame, and its plain lines elsewhere."""

import io
from contextlib import closing
from pathlib import Path
from typing import Literal

from rich.console import Console

from gepa_client.certificate.certificate import certify
from gepa_client.journal.run_events import Finished, FleetChanged, NoProposal, Progress, Rejected, StepFailed, Warned
from gepa_client.journal.store import open_store
from gepa_client.run.run_view import RunView
from gepa_client.settings.run_config import RunConfig
from gepa_client.views.console import echo_next
from gepa_client.views.final_summary import RunSummary, score_line, show
from gepa_client.views.live_display import SPARE, LiveDisplay, PlainDisplay, frame, waiting_line
from tests.gepa_client.certificate.certified_run import Certified
from tests.gepa_client.example_records import NASTY, candidate, example_record


def test_the_frame_fits_the_terminal_and_shows_what_counts() -> None:
    width, height = 80, 24
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
    record.apply(FleetChanged(kind="waiting", url=None, detail="refused", after=90.0, seconds=10.0))
    record.apply(Warned(message="x", seconds=30.0))
    assert "up to 1:10" in str(waiting_line(record))


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


def test_a_server_that_rests_is_shown_once_until_it_is_back() -> None:
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=80))
    kinds: tuple[Literal["resting", "back"], ...] = ("resting", "resting", "back", "resting")
    for kind in kinds:
        display.event(FleetChanged(kind=kind, url="http://a", detail="lost", after=1.0), example_record())
    failed = StepFailed(iteration=1, step="reflection", message="no answer")
    for event in (failed, failed, candidate(1, 0.5, [0], "x", 1, 9), failed):
        display.event(event, example_record())
    assert len(out.getvalue().splitlines()) == 6


def test_a_command_that_is_wider_than_the_terminal_can_be_pasted() -> None:
    command = "evolverpc optimize http://127.0.0.1:8000 --trainset 'my rows.jsonl' --valset data/val.jsonl --seed 3"
    out = io.StringIO()
    echo_next(Console(file=out, width=80, force_terminal=True, color_system=None), command)
    assert out.getvalue() == f"next: {command}\n"


def summary(view: RunView, finished: Finished, output: Path | None = None, *written: str) -> RunSummary:
    """Of a run that ended within a second."""
    return RunSummary(
        settings=RunConfig.model_construct(),
        run_id="r1",
        store=None,
        output=output,
        view=view,
        finished=finished,
        connected=True,
        written=[*written],
        seconds=1.0,
        replayed=False,
        by_hand=False,
    )


def test_the_last_line_counts_no_result_of_a_program_that_calls_no_model_as_one_without_a_price() -> None:
    counts = {"evaluate": 24}
    finished = Finished(
        status="completed", metric_calls=24, reflection_usd=0.5, unpriced=counts | {"proposal": 1}, unreported=counts
    )
    assert "$0.5000 + 1 result without a price" in score_line(summary(example_record(), finished))


def test_a_candidate_that_is_worse_on_the_test_rows_is_not_recommended(tmp_path: Path) -> None:
    out = io.StringIO()
    record = example_record()
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        record.certificate = certify(store, Certified(scores=([1.0] * 12, [0.0] * 10 + [1.0] * 2)).into(store))
    finished = Finished(status="completed", metric_calls=600)
    ended = summary(record, finished, tmp_path / "runs" / "r1", "best_candidate.json")
    show(ended, Console(file=out, width=200, force_terminal=True, color_system=None))
    text = "no: the test rows show that it is worse than the seed"
    assert f"{'use it':<15} {text}" in out.getvalue()
