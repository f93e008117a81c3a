"""Lines about events of a run that the page lists, worded as on the terminal."""

from collections import deque
from collections.abc import Iterable
from typing import Literal

from gepa_client.journal.run_events import Event, Warned
from gepa_client.page.page_fact import Part
from gepa_client.report.event_words import event_line

DECISIONS_LISTED = 20
"""Lines about recorded events that a page lists, the last ones. Of warnings, a run records a bounded number."""

Tone = Literal["good", "warn", "bad", "quiet", ""]

TONES: dict[str, Tone] = {"green": "good", "yellow": "warn", "red": "bad", "dim": "quiet"}
"""How the page shows a style of the terminal; others as plain text."""


class EventLine(Part):
    """A line about an event. `at`: its place; None if that is not known, so that every place shows it.

    `tone`: of `lead`, its first words, or of all without them.
    """

    at: int | None
    lead: str
    text: str
    tone: Tone


class EventLines(Part):
    """Warnings, then the recorded events whose texts are kept, newest first. `omitted`: earlier ones left out."""

    event: Literal["lines"] = "lines"
    lines: list[EventLine]
    omitted: int


class EventListBuilder:
    """The lines of one run. `until`: as of `view_of`."""

    def __init__(self, until: int | None) -> None:
        self._until = until
        self._count = 0
        self._last: deque[EventLine] = deque(maxlen=DECISIONS_LISTED)
        self._warnings: dict[str, None] = {}

    def add(self, event: Event) -> None:
        """Add the line about a recorded event, if its text is kept."""
        if event_line(event).is_kept and (self._until is None or (event.at or 0) <= self._until):
            self._count += 1
            self._last.appendleft(_shown(event))

    def with_warnings(self, messages: Iterable[str]) -> EventLines:
        """Return them after these warnings, and those that were given before: a resumed run has its own ones."""
        self._warnings |= dict.fromkeys(messages)
        warnings = [_shown(Warned(message=message)) for message in reversed(self._warnings)]
        last = sorted(self._last, key=lambda line: -(line.at or 0))
        return EventLines(lines=[*warnings, *last], omitted=self._count - len(self._last))


def _shown(event: Event) -> EventLine:
    line = event_line(event)
    return EventLine(at=event.at, lead=line.lead, text=line.text, tone=TONES.get(line.style, ""))
