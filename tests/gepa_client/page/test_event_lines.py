"""A page lists the lines of events that stay on the terminal, a bounded number of them."""

from gepa_client.journal.run_events import NoProposal, StepFailed
from gepa_client.page.event_lines import DECISIONS_LISTED, LinesOfRun


def test_the_last_lines_follow_the_warnings_newest_first_up_to_the_place_shown() -> None:
    whole, earlier = LinesOfRun(None), LinesOfRun(3)
    for at in range(DECISIONS_LISTED + 7):
        for lines in (whole, earlier):
            lines.add(NoProposal(at=at, iteration=at, reason="every score is perfect"))
            lines.add(StepFailed(at=at, iteration=at, step="reflection", message=f"<b>\n{at}"))
    whole.with_warnings(["first", "second"])
    found = whole.with_warnings(["first"])
    assert found.omitted == 7
    assert [(line.text, line.lead, line.tone) for line in found.lines[:3]] == [
        ("second", "warning:", "warn"),
        ("first", "warning:", "warn"),
        (f"<b> {DECISIONS_LISTED + 6}", f"iteration {DECISIONS_LISTED + 6}: reflection failed:", "bad"),
    ]
    assert [line.at for line in found.lines[2:]] == list(range(DECISIONS_LISTED + 6, 6, -1))
    assert [line.at for line in earlier.with_warnings([]).lines] == [3, 2, 1, 0]
