"""The page of an ended run as one file that loads nothing: `report.html`, with the run's data inside."""

import base64
import hashlib
import html
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

from evolverpc_common.display_text import command
from gepa_client.analysis.explanation import Explanation, explain
from gepa_client.errors import JournalError
from gepa_client.journal.store import Store, named_store
from gepa_client.page.built_page import asset
from gepa_client.page.candidate_details import CandidateReader, NotThere
from gepa_client.page.event_list import event_list
from gepa_client.page.event_log import EventLog, to_json
from gepa_client.page.proposal_details import proposals
from gepa_client.page.run_reader import RunReader

LARGEST_EVENTS, LARGEST_ANSWERS = 8 << 20, 4 << 20
"""Bytes of the run's events, and of what the page otherwise loads when it is opened; the page itself has 0.2 MB."""

CELLS = 60
"""Results on rows that a file holds: those of the rows that moved most."""

STYLESHEET = b'<link rel="stylesheet" href="/assets/page.css">'
SCRIPT = b'<script src="/assets/page.js" defer></script>'
CHARSET = b'<meta charset="utf-8">'
SHOW = b"evolverpc show RUN"

Event = dict[str, Any]


def exported(store: Store, url: str, run_id: str, until: int | None = None) -> bytes:
    """Return the file. `url`: of the store. `until`: only what is before this place in the journal.

    Raises:
        JournalError: the store cannot be read.
        PageMissing: the installation lacks the page.
    """
    events = _events(store, url, run_id)
    found = explain(store, store.run(run_id), until)
    if until is not None:
        later = ("results", "summary")
        events = [event for event in events if event["event"] not in later and (event.get("at") or 0) <= until]
    left_out: list[str] = []
    written = _bounded_events(events, found, left_out)
    answers: list[bytes] = []
    omitted, room = 0, LARGEST_ANSWERS
    api = f"/api/runs/{quote(run_id, safe=SAFE)}"
    for path, read in _wanted(store, run_id, found, events, until) if found is not None else ():
        with suppress(NotThere):
            member = to_json(api + path) + b":" + to_json(read())
            if len(member) > room:
                omitted += 1
                continue
            room -= len(member)
            answers.append(member)
    if omitted:
        left_out.append(f"{omitted} prompts, results or texts for which there is no room")
    store_named = named_store(url)
    return _page(
        command("show", run_id, store=store_named),
        b'{"events":[%s],"answers":{%s},"left_out":%s,"command":%s}'
        % (
            b",".join(written),
            b",".join(answers),
            to_json(left_out),
            to_json(command("watch", run_id, store=store_named)),
        ),
    )


SAFE = "-_.!~*'()"
"""Characters that JavaScript's `encodeURIComponent` leaves, beside letters and digits."""


def _events(store: Store, url: str, run_id: str) -> list[Event]:
    log = EventLog()
    reader = RunReader(store, url, run_id, log, ended=True)
    while True:
        reader.poll()
        if trouble := [each["problem"] for each in log.last_of("store") if each["problem"] is not None]:
            raise JournalError(trouble[0])
        if any(position["complete"] for position in log.last_of("position")):
            reader.poll()  # commands name the end of the journal
            return [json.loads(body) for _, body in log.since(0, 1 << 62)[0]]


# --- what is inside --------------------------------------------------------------------------------------------------


def _bounded_events(events: list[Event], found: Explanation | None, left_out: list[str]) -> list[bytes]:
    """Return the events as JSON; if they are too large, the less important parts are left out, with a note."""
    on_way = {0, *(step.candidate for step in found.steps)} if found is not None else {0}
    written = [to_json(event) for event in events]
    if sum(map(len, written)) <= LARGEST_EVENTS:
        return written
    left_out.append(
        "the texts and scores of candidates that the best one does not come from, the results of proposals that did "
        "not become candidates, and the differences of changes of code"
    )
    return [to_json(_reduced(event, on_way)) for event in events if event["event"] != "results"]


def _reduced(event: Event, on_way: set[int]) -> Event:
    if event["event"] == "mutation":
        return {**event, "diff": None}
    if event["event"] != "candidate" or event["index"] in on_way:
        return event
    sizes = {name: len(sent["text"]) + sent["omitted"] for name, sent in event["texts"].items()}
    return {**event, "texts": {name: {"text": "", "omitted": size} for name, size in sizes.items()}, "scores": []}


def _wanted(
    store: Store, run_id: str, found: Explanation, events: list[Event], until: int | None
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the paths of what readers open, the most important first, with what reads it."""
    yield "/explanation", lambda: found
    yield "/history", lambda: event_list(store, store.run(run_id), until=until)
    steps = [step.proposal for step in found.steps if step.proposal is not None]
    shown = proposals(store, run_id, [*steps, *found.others]) if steps or found.others else {}
    candidates = {event["index"]: event for event in events if event["event"] == "candidate"}
    reader = CandidateReader(store, run_id)
    for index in dict.fromkeys((found.best, 0)):
        for name, sent in candidates[index]["texts"].items() if index in candidates else ():
            if sent["omitted"]:
                path = f"/text?candidate={index}&component={quote(name, safe=SAFE)}"
                yield path, partial(reader.text, index, name, 0)
    for number in (*steps, *reversed(found.others)):
        if number in shown:
            yield f"/proposal?at={number}", partial(shown.__getitem__, number)
    for candidate, place in _cells(found, events):
        yield f"/cell?candidate={candidate}&row={place}", partial(reader.cell, candidate, place)


def _cells(found: Explanation, events: list[Event]) -> list[tuple[int, int]]:
    """Return candidates and places of the rows that a change to the best candidate moved, or left wrong."""
    ids = [row for event in events if event["event"] == "rows" for row in event["ids"]]
    places: Mapping[str, int] = {row: place for place, row in enumerate(ids)}
    *earlier, last = found.steps or (None,)
    changes = [change for change in (last, found.overall, *reversed(earlier)) if change is not None]
    cells = {
        (candidate, places[row.row]): None
        for change in changes
        for group in change.groups
        for row in group.rows
        if row.row in places
        for candidate in (change.against, change.candidate)
    }
    return list(cells)[:CELLS]


# --- the file --------------------------------------------------------------------------------------------------------


def _page(show: str, data: bytes) -> bytes:
    """Return the built page with this JSON inside, allowed to run its own script and style and to load nothing.

    `show`: the command that prints the run, for a reader without JavaScript.
    """
    style, script = asset("page.css"), asset("page.js")
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    inside = b'<script type="application/json" id="run-data">%s</script>\n<script>%s</script>' % (
        data.replace(b"<", rb"\u003c"),  # so no text can end the element
        script,
    )
    page = asset("index.html")
    for place, content in (
        (CHARSET, CHARSET + f'\n<meta http-equiv="Content-Security-Policy" content="{policy}">'.encode()),
        (STYLESHEET, b"<style>%s</style>" % style),
        (SCRIPT, inside),
        (SHOW, html.escape(show).encode(errors="backslashreplace")),
    ):
        before, _, after = page.partition(place)
        page = before + content + after
    return page


def _digest(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()
