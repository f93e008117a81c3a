"""Readers of the streams of jobs, which see every event once although processes are killed and connections cut."""

import threading
from typing import Any

from gepa_client.page.page_events import KEYS
from gepa_service.client import ServiceClient
from gepa_service.model.work import Work
from tests.gepa_service.routes.test_job_events import state

WAIT_S = 300.0
AWAY_S = 300.0
"""Seconds for which the API may be away: it starts slowly on a busy machine, and may be killed again."""

OF_THE_READER = ("store", "position", "now", "notices")
"""Kinds of events about this moment and how far a server has read, which another one that reads the run sends anew."""


class Follower:
    """Follows the stream of a job in a thread, by the product's own client, until its end.

    `events`: of the last server. `resets`: how often another server began again. `doubled`: what came again
    unchanged. `differences`: between the stream and one that is read right after its end, in words; from the
    same server, as another one does not state what it did not see of proposals that were dropped.
    """

    def __init__(self, url: str, key: str, job: Work) -> None:
        self.job = job
        self.events: list[dict[str, Any]] = []
        self.resets = 0
        self.doubled: list[str] = []
        self._last: dict[str, dict[str, Any]] = {}
        """The last event of each kind and key."""
        self.error: BaseException | None = None
        self.differences: list[str] = []
        self.is_comparing = False
        self._url, self._key = url, key
        self._thread = threading.Thread(target=self._run, name=f"follower of {job.id}", daemon=True)
        self._thread.start()

    @property
    def is_reading(self) -> bool:
        """Whether it has received events and waits for more."""
        return bool(self.events) and self._thread.is_alive()

    def ended(self) -> None:
        """Wait until the stream has ended. Fails if it broke off for good."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), f"the stream of {self.job.id} does not end"
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with ServiceClient(self._url, self._key) as client:
                for event in client.follow(self.job.id, away_s=AWAY_S):
                    self._take(event)
                self.is_comparing = True
                self.differences = self._compared(list(client.follow(self.job.id)))
        except BaseException as error:  # noqa: BLE001  the test raises it
            self.error = error
        finally:
            self.is_comparing = False

    def _take(self, event: dict[str, Any]) -> None:
        if event["event"] == "reset":
            self.resets += 1
            self.events, self._last = [], {}
            return
        key = f"{event['event']} {event.get(KEYS.get(event['event'], ''))}"
        # Of this moment's kinds, a reader who is slow may miss the event between two equal ones.
        if event["event"] not in OF_THE_READER and self._last.get(key) == event:
            self.doubled.append(key)
        self._last[key] = event
        self.events.append(event)

    def _compared(self, whole: list[dict[str, Any]]) -> list[str]:
        seen, now = shown(self.events), shown(whole)
        found = [f"{name}: lost" for name in now.keys() - seen.keys()]
        found += [f"{name}: only while the job ran" for name in seen.keys() - now.keys()]
        both = sorted(now.keys() & seen.keys())
        found += [f"{name}: {seen[name]}, and at the end {now[name]}" for name in both if seen[name] != now[name]]
        return found + [f"{name}: doubled" for name in self.doubled]


def shown(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What these events come to: by kind and key, results by their number, rows by their place."""
    whole = [event for event in events if event["event"] not in (*OF_THE_READER, "results", "rows")]
    found = state(whole)
    for event in events:
        if event["event"] == "results":
            columns = ("numbers", "candidates", "rows", "scores")
            for number, *result in zip(*(event[name] for name in columns), strict=True):
                assert f"results {number}" not in found, f"result {number} was sent twice"
                found[f"results {number}"] = result
        elif event["event"] == "rows":
            found |= {f"rows {at}": row for at, row in enumerate(event["ids"], event["start"])}
    return found
