"""What a page knows by the events that it received, and its state at any place of the journal."""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from gepa_client.errors import NoSuchRun
from gepa_client.journal.store import find_run, open_store
from gepa_client.page.event_log import EventLog
from gepa_client.page.page_events import KEYS
from gepa_client.page.run_reader import RunReader
from tests.support.waiting import until

READ_TIMEOUT_S = 60.0


@dataclass
class PageState:
    """Applies events in any order of places; `ids` of all that a stream sent, in the order of arrival."""

    facts: dict[tuple[str, Any], dict[str, Any]] = field(default_factory=dict)
    results: dict[tuple[str, int], Any] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)

    def apply(self, event: dict[str, Any]) -> None:
        if event["event"] == "results":
            for candidate, row, score in zip(event["candidates"], event["rows"], event["scores"], strict=True):
                self.results[candidate, row] = score
            return
        key = KEYS.get(event["event"])
        self.facts[event["event"], None if key is None else event[key]] = event

    def one(self, kind: str) -> dict[str, Any] | None:
        return self.facts.get((kind, None))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fact for (each, _), fact in self.facts.items() if each == kind]

    @property
    def complete(self) -> bool:
        position = self.one("position")
        return position is not None and position["complete"]

    def at(self, number: int) -> dict[str, Any]:
        """What the page shows at this place: what `replay --until` prints."""
        pools = [each for each in (*self.of("candidate"), *self.of("steered")) if each["at"] <= number]
        calls = [each for each in self.of("budget") if each["at"] <= number]
        pool = max(pools, key=lambda each: each["at"], default={"front": [], "best": None})
        candidates = sorted((each for each in self.of("candidate") if each["at"] <= number), key=lambda c: c["index"])
        decided = [each for each in self.of("proposal") if each["decided"] is not None and each["decided"] <= number]
        outcomes = [each["outcome"] for each in decided]
        return {
            "candidates": [(each["index"], each["parents"], each["score"]) for each in candidates],
            "front": pool["front"],
            "best": pool["best"],
            "rejected": outcomes.count("rejected") + outcomes.count("raced_out"),
            "metric_calls": max(calls, key=lambda each: each["at"], default={"metric_calls": 0})["metric_calls"],
        }


def replayed_state(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The same by the events of `replay --json`."""
    found = [event for event in events if event["event"] == "candidate"]
    dropped = [event for event in events if event["event"] == "steered" and event["best"] is not None]
    pool = max([*found[-1:], *dropped[-1:]], key=events.index, default={"front": [], "best": None})
    [finished] = [event for event in events if event["event"] == "finished"]
    return {
        "candidates": [(each["index"], each["parents"], each["score"]) for each in found],
        "front": pool["front"],
        "best": pool["best"],
        "rejected": sum(event["event"] == "rejected" for event in events),
        "metric_calls": finished["metric_calls"],
    }


def begun(store: str, candidates: int = 1) -> str:
    """Wait until the last run has so many candidates; return its id."""

    def found() -> str | None:
        with closing(open_store(store)) as opened, suppress(NoSuchRun):
            run = find_run(opened, "last")
            return run.id if len(opened.candidates(run.id)) >= candidates else None
        return None

    return str(until(found, READ_TIMEOUT_S))


def read_run(url: str, run_id: str, *, until: Callable[[PageState], bool] = lambda page: page.complete) -> PageState:
    """The state of a page that read a run to its end."""
    log, page, number = EventLog(), PageState(), 0
    give_up = time.monotonic() + READ_TIMEOUT_S
    with closing(open_store(url)) as store:
        reader = RunReader(store, url, run_id, log)
        while not until(page):
            assert time.monotonic() < give_up, page.one("position")
            pause = reader.poll()
            found, number = log.since(number, 1 << 30)
            for _, data in found:
                page.apply(orjson.loads(data))
            time.sleep(min(pause, 0.05))
    return page
