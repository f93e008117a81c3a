"""What a page posts becomes requests to a run, or an error that states why not."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gepa_client.errors import SteeringRefused
from gepa_client.journal.entries import CONTROL, STEER, SteeringRequest
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
    store.add_request(RUN_ID, SteeringRequest("another", {"kind": "pause"}, "ann@desk", "now"))
    assert stop(store, store.run(RUN_ID), Pause(), 0.0)[0].status == "paused"
    assert [each.id for each in store.requests(RUN_ID, waiting=True)] == [waiting]
    assert [entry.number for entry in store.entries(RUN_ID, CONTROL)] == [0, 1], "of two pauses both are recorded"


def test_a_stop_leaves_a_run_to_its_driver_while_that_sends_heartbeats(store: Store) -> None:
    store.claim(RUN_ID, store.run(RUN_ID).claim, "driver", "pid 1")
    store.update(RUN_ID, {"status": "running", "config": store.run(RUN_ID).config | {"lease_s": 1.0}})
    asked: list[str] = []
    with LeaseHeartbeat(store, RUN_ID, "driver", 1.0, dict, asked.append, lambda _: None):
        run, _ = stop(store, store.run(RUN_ID), Pause(), 2.5)
    assert (run.claim.owner, run.status, asked) == ("driver", "running", ["pause"])


def test_a_run_that_is_over_or_has_too_many_requests_refuses_them(store: Store) -> None:
    store.answer_request(RUN_ID, post_request(store, RUN_ID, {"kind": "unpin"})["id"], "taken", number=0)
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
    pin = {"kind": "pin", "candidate": 1}
    refused = [
        (pin | {"candidate": 99}, 409, "has no candidate 99"),
        ({"kind": "sing"}, 400, "'sing'"),
        ({"kind": "budget", "max_seconds": 1e12}, 400, "budget.max_seconds: "),
        (["pin"], 400, "valid dictionary"),
        ({"kind": "pin"}, 400, "pin.candidate: Field required"),
        (pin | {"more": 1}, 400, "Extra inputs"),
        ({"kind": "hint", "text": "warm"}, 409, "reflection_lm"),
    ]
    with served(store.url) as server:
        async with Browser(server.address(RUN_ID)) as browser:
            await browser.open_session()
            url = f"{browser.base}/api/runs/{RUN_ID}/steer"
            for headers in (browser.origin, browser.writes | {"X-EvolveRPC-Key": "\u00e9"}):
                async with browser.http.post(url, json={"kind": "unpin"}, headers=headers) as without_the_key:
                    assert without_the_key.status == 403
            async with browser.http.post(url, json=pin, headers=browser.writes) as answer:
                assert answer.status == 200, await answer.text()
                taken = await answer.json()
            for action, status, reason in refused:
                async with browser.http.post(url, data=json.dumps(action), headers=browser.writes) as answer:
                    assert answer.status == status, await answer.text()
                    assert reason in (await answer.json())["error"]
    [waiting] = store.requests(RUN_ID, waiting=True)
    assert (taken["id"], taken["action"], taken["outcome"]) == (waiting.id, pin, None)
    assert "@" in taken["author"]
