"""The list of a run's events: the latest first, in pages, by words, up to a place, and of bounded reading."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gepa_client.journal.entries import EVENTS, PROCESSES, Entry
from gepa_client.journal.run_events import Event, Finalized, NoProposal, StepFailed
from gepa_client.journal.store import Store, open_store
from gepa_client.page import event_list as listing
from gepa_client.page.event_list import EventLine, event_list
from gepa_client.page.run_details import BadQuery, RunDetails
from tests.gepa_client.stored_run import RUN_ID, Made, entry_of, put


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    path = str(tmp_path / "runs.db")
    failed = [StepFailed(at=100 + at, iteration=at, step="reflection", message=f"number {at}") for at in range(250)]
    skipped = NoProposal(at=400, iteration=300, reason="All scores are perfect")
    put(path, Made())
    with closing(open_store(path)) as opened:
        for number, event in enumerate([*failed, skipped], 10):
            opened.write(RUN_ID, "", [recorded(EVENTS, number, event)])
        opened.write(RUN_ID, "", [recorded(PROCESSES, 1, Finalized(at=500, message="kept"))])
        yield opened


def recorded(part: str, number: int, event: Event) -> Entry:
    return entry_of(part, number, event.event, "", event.model_dump(mode="json", exclude_defaults=True))


def read(store: Store, **query: str) -> list[EventLine]:
    found, details = [], RunDetails(store, RUN_ID)
    while True:
        page = details.read("history", query)
        assert isinstance(page, listing.EventList) and len(page.items) <= listing.LINES + 1
        found += page.items
        if page.next is None:
            return found
        query["after"] = page.next


def test_pages_hold_every_event_with_a_sentence_once_the_latest_first(store: Store) -> None:
    lines = read(store)
    assert [(line.at, line.kind) for line in lines[:3]] == [(500, "finalized"), (400, "no proposal"), (349, "failure")]
    assert lines[2].text == "iteration 249: reflection failed: number 249"
    assert sum(line.kind == "failure" for line in lines) == 250
    assert [line.at for line in lines] == sorted((line.at for line in lines), reverse=True)
    assert lines[-1].text == "the seed scores 0"


def test_lines_are_chosen_by_their_words_and_by_their_place(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "READ", 20)
    for words in ("PERFECT", "all scores", "All scores"):
        assert [line.kind for line in read(store, words=words)] == ["no proposal"]
    assert [line.at for line in read(store, words="no proposal", until="399")] == []
    assert read(store, until="120")[0].text.endswith("number 20")
    first = event_list(store, store.run(RUN_ID), words="the seed scores")
    assert not first.items and first.next is not None, "it read a part of the events alone"
    with pytest.raises(BadQuery):
        read(store, after="-1")
