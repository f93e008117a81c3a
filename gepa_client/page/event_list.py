"""The recorded events of a run as lines, the latest first, each with its place, in the words of all views."""

from collections.abc import Iterator

from evolverpc_common.display_text import one_line
from gepa_client.journal.entries import EVENTS, PROCESSES, StoredRun
from gepa_client.journal.history import end_of, entries, event_of
from gepa_client.journal.run_events import Event, Started
from gepa_client.journal.store import Store
from gepa_client.page.page_events import Part
from gepa_client.report.event_words import event_line

LINES = 100
"""Lines of a page."""

READ = 10_000
"""Events that are read for a page at most: with words that few lines have, it holds fewer lines."""

READ_AT_ONCE = 500
LONGEST = 1_000
"""Characters of a line."""


class EventLine(Part):
    """An event. `at`: how many numbers of the journal GEPA had requested by then; `kind`: its name."""

    at: int
    kind: str
    text: str


class EventList(Part):
    """A page of the list. `next`: what the next page follows; None after the last one."""

    items: list[EventLine]
    next: str | None


def event_list(
    store: Store, run: StoredRun, *, after: int | None = None, words: str = "", until: int | None = None
) -> EventList:
    """Return the first page of the events that have a line, or the one that follows `after`.

    `words`: only lines that contain them, in any case. `until`: only events by this place in the journal. What the
    processes of the run found after the search is on the first page.
    """
    end = end_of(store, run.id, EVENTS) if after is None else after
    last = max(0, end - READ)
    recorded = map(event_of, entries(store, run.id, PROCESSES)) if after is None else ()
    found = [*_lines([event for event in recorded if not isinstance(event, Started)], words, until)]
    while end > last and len(found) < LINES:
        start = max(last, end - READ_AT_ONCE)
        for entry in reversed([*entries(store, run.id, EVENTS, start, end)]):
            found += _lines([event_of(entry)], words, until)
            if len(found) >= LINES:
                start = entry.number
                break
        end = start
    found.sort(key=lambda line: -line.at)
    return EventList(items=found, next=str(end) if end else None)


def _lines(events: list[Event], words: str, until: int | None) -> Iterator[EventLine]:
    for event in reversed(events):
        shown, kind = event_line(event), event.event.replace("_", " ")
        text = one_line(f"{shown.lead} {shown.text}".strip(), LONGEST)
        at = event.at or 0
        if text and (until is None or at <= until) and words.casefold() in f"{kind} {text}".casefold():
            yield EventLine(at=at, kind=kind, text=text)
