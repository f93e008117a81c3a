"""What a page posts becomes requests to a run, or an error that states why not."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gepa_client.errors import SteeringRefused
from gepa_client.journal.entries import CONTROL, STEER
from gepa_client.journal.lease import LeaseHeartbeat
from gepa_client.journal.steer_entries import Pause
from gepa_client.journal.store import Store, open_store
from gepa_client.steering.user_requests import MOST_WAITING, post_request, stop
from tests.gepa_client.page.browsing import Browser, served
from tests.gepa_client.stored_run import RUN_ID, Made, put


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a run that is paused."""
    put(tmp_path / "store.db", Made())
    with closing(open_store(str(tmp_path / "store.db"))) as opened:
        opened.update(RUN_ID, {"status": "paused"})
        yield opened


def test_a_run_that_no_process_drives_is_cancelled_at_once_and_the_record_names_the_user(store: Store) -> None:
    waiting = post_request(store, RUN_ID, {"kind": "unpin"})["id"]
    made = post_request(store, RUN_ID, {"kind": "cancel"})
    run = store.run(RUN_ID)
    assert (run.status, run.claim.owner) == ("cancelled", None)
    outcomes = {each.id: (each.outcome, each.reason) for each in store.requests(RUN_ID)}
    assert outcomes == {made["id"]: ("taken", None), waiting: ("refused", "the run was cancelled before it was taken")}
    [entry] = store.entries(RUN_ID, CONTROL)
    assert (entry.kind, made["author"].encode() in entry.answer) == (STEER, True)
    assert b'"kind":"cancel"' in entry.answer


def test_a_pause_leaves_other_requests_waiting(store: Store) -> None:
    store.update(RUN_ID, {"status": "running"})
    waiting = post_request(store, RUN_ID, {"kind": "unpin"})["id"]
    assert stop(store, store.run(RUN_ID), Pause(), 0.0)[0].status == "paused"
    assert [each.id for each in store.requests(RUN_ID, waiting=True)] == [waiting]


def test_a_stop_leaves_a_run_to_its_driver_while_that_sends_heartbeats(store: Store) -> None:
    store.claim(RUN_ID, store.run(RUN_ID).claim, "driver", "pid 1")
    store.update(RUN_ID, {"status": "running", "config": store.run(RUN_ID).config | {"lease_s": 1.0}})
    asked: list[str] = []
    with LeaseHeartbeat(store, RUN_ID, "driver", 1.0, dict, asked.append, lambda _: None):
        run, _ = stop(store, store.run(RUN_ID), Pause(), 2.5)
    assert (run.claim.owner, run.status, asked) == ("driver", "running", ["pause"])


@pytest.mark.parametrize(
    ("posted", "reason"),
    [
        (None, "valid dictionary"),
        ({"kind": "pin"}, "pin.candidate: Field required"),
        ({"kind": "pin", "candidate": 1, "more": 1}, "Extra inputs"),
    ],
)
def test_what_is_no_action_is_an_error_with_its_place(store: Store, posted: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        post_request(store, RUN_ID, posted)
    assert store.requests(RUN_ID) == []


def test_a_run_that_is_over_or_has_too_many_requests_refuses_them(store: Store) -> None:
    for _ in range(MOST_WAITING):
        post_request(store, RUN_ID, {"kind": "unpin"})
    with pytest.raises(SteeringRefused, match=f"{MOST_WAITING} requests to run {RUN_ID} wait already"):
        post_request(store, RUN_ID, {"kind": "unpin"})
    with pytest.raises(SteeringRefused, match="there is nothing to pause"):
        post_request(store, RUN_ID, {"kind": "pause"})
    store.update(RUN_ID, {"status": "completed"})
    with pytest.raises(SteeringRefused, match="is completed"):
        post_request(store, RUN_ID, {"kind": "cancel"})


async def test_a_page_steers_a_run_and_gets_the_reason_if_it_cannot(store: Store) -> None:
    unknown = {"kind": "pin", "candidate": 99}
    posted = [
        ({"kind": "pin", "candidate": 1}, 200),
        (unknown, 409),
        ({"kind": "sing"}, 400),
        ({"kind": "budget", "max_seconds": 1e12}, 400),
        (["pin"], 400),
    ]
    with served(store.url, steer=post_request) as server:
        async with Browser(server.address(RUN_ID)) as browser:
            await browser.open_session()
            url = f"{browser.base}/api/runs/{RUN_ID}/steer"
            for headers in (browser.origin, browser.writes | {"X-EvolveRPC-Key": "\u00e9"}):
                async with browser.http.post(url, json={"kind": "unpin"}, headers=headers) as without_the_key:
                    assert without_the_key.status == 403
            answers = []
            for action, status in posted:
                async with browser.http.post(url, json=action, headers=browser.writes) as answer:
                    assert answer.status == status, await answer.text()
                    answers.append(await answer.json())
    [waiting] = store.requests(RUN_ID, waiting=True)
    assert answers[0]["id"] == waiting.id
    assert (answers[0]["action"], answers[0]["outcome"]) == (posted[0][0], None)
    assert "@" in answers[0]["author"]
    assert "has no candidate 99" in answers[1]["error"]
    assert all(answer["error"] for answer in answers[2:])
