"""A write that is sent again with the same key is carried out once."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI, Request

from gepa_service.api import idempotency
from gepa_service.api.access import Writer
from gepa_service.api.idempotency import remove_old
from gepa_service.api.problems import Problem
from gepa_service.model.tenant import TENANTS, ApiKey, AuditEntry, IdempotentResponse
from gepa_service.records import RecordStore, now
from tests.gepa_service.api.conftest import Client
from tests.support.waiting import eventually


class Counted:
    """A route that counts its calls, and can be held up or let fail."""

    def __init__(self, app: FastAPI) -> None:
        self.calls = 0
        self.entered, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()
        self.failure: Exception | None = None

        async def work(request: Request, caller: Writer) -> dict[str, Any]:
            self.calls += 1
            self.entered.set()
            await asyncio.wait_for(self.go.wait(), 20)
            if self.failure is not None:
                raise self.failure
            return {"call": self.calls}

        app.add_api_route("/counted{of:path}", work, methods=["POST", "PATCH"], status_code=202)


@pytest.fixture
def counted(app: FastAPI) -> Counted:
    return Counted(app)


async def test_a_repeated_write_has_the_first_response_and_is_carried_out_and_recorded_once(
    call: Client, counted: Counted, records: RecordStore
) -> None:
    first = await call("editor", "POST", "/counted", {"a": 1}, idempotency_key="k1")
    again = await call("editor", "POST", "/counted", {"a": 1}, idempotency_key="k1")
    assert (first.status_code, first.json()) == (again.status_code, again.json()) == (202, {"call": 1})
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["content-type"] == first.headers["content-type"]
    assert counted.calls == 1
    assert records.count(AuditEntry, "acme") == 1


async def test_writes_without_key_or_with_other_keys_are_carried_out_each(call: Client, counted: Counted) -> None:
    for headers in ({}, {}, {"idempotency_key": "k1"}, {"idempotency_key": "k2"}):
        await call("editor", "POST", "/counted", {}, **headers)
    await call("owner", "POST", "/counted", {}, idempotency_key="k1")
    await call("other tenant's owner", "POST", "/counted", {}, idempotency_key="k1")
    await call("editor", "PATCH", "/counted", {}, idempotency_key="k1")
    await call("editor", "POST", "/counted/other", {}, idempotency_key="k1")
    assert counted.calls == 8


async def test_another_request_with_the_same_key_is_refused(call: Client, counted: Counted) -> None:
    await call("editor", "POST", "/counted", {"a": 1}, idempotency_key="k1")
    for path, body in (("/counted", {"a": 2}), ("/counted?b=1", {"a": 1})):
        refused = await call("editor", "POST", path, body, idempotency_key="k1")
        assert (refused.status_code, refused.json()["type"]) == (422, "urn:evolverpc:key-reused")
    assert counted.calls == 1


async def test_a_repeat_while_the_first_is_answered_is_refused_and_answered_later(
    call: Client, counted: Counted
) -> None:
    counted.go.clear()
    first = asyncio.create_task(call("editor", "POST", "/counted", {}, idempotency_key="k1"))
    await asyncio.wait_for(counted.entered.wait(), 20)
    refused = await call("editor", "POST", "/counted", {}, idempotency_key="k1")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:evolverpc:in-progress")
    assert refused.headers["retry-after"] == "1"
    counted.go.set()
    await first
    assert (await call("editor", "POST", "/counted", {}, idempotency_key="k1")).json() == {"call": 1}


async def test_of_many_at_once_one_is_carried_out(call: Client, counted: Counted) -> None:
    found = await asyncio.gather(*(call("editor", "POST", "/counted", {}, idempotency_key="k1") for _ in range(8)))
    assert counted.calls == 1
    assert {response.status_code for response in found} <= {202, 409}


@pytest.mark.parametrize("failure", [Problem(409, "x", "X", "x"), RuntimeError("broken")])
async def test_a_write_that_failed_may_be_sent_again(call: Client, counted: Counted, failure: Exception) -> None:
    counted.failure = failure
    assert (await call("editor", "POST", "/counted", {}, idempotency_key="k1")).status_code >= 400
    counted.failure = None
    assert (await call("editor", "POST", "/counted", {}, idempotency_key="k1")).json() == {"call": 2}


async def test_a_key_that_is_not_usable_is_refused(call: Client, counted: Counted) -> None:
    for key in ("", "x" * 201, "a\tb"):
        refused = await call("editor", "POST", "/counted", {}, idempotency_key=key)
        assert (refused.status_code, refused.json()["field"]) == (422, "Idempotency-Key")
    assert counted.calls == 0


async def test_a_request_whose_api_was_killed_is_carried_out_once_its_record_is_not_renewed(
    call: Client, counted: Counted, records: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await call("editor", "POST", "/counted", {}, idempotency_key="k1")
    (record,) = records.page(IdempotentResponse, "acme")
    cut_off = records.replace(record.model_copy(update={"status": None}))
    assert (await call("editor", "POST", "/counted", {}, idempotency_key="k1")).status_code == 409
    monkeypatch.setattr(idempotency, "SILENT", now() - cut_off.updated)
    assert (await call("editor", "POST", "/counted", {"other": 1}, idempotency_key="k1")).status_code == 422
    monkeypatch.setattr(idempotency, "SILENT", timedelta())
    for _ in range(2):
        assert (await call("editor", "POST", "/counted", {}, idempotency_key="k1")).json() == {"call": 2}


async def test_a_long_request_renews_its_record(
    call: Client, counted: Counted, records: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "BEAT_S", 0.01)
    counted.go.clear()
    first = asyncio.create_task(call("editor", "POST", "/counted", {}, idempotency_key="k1"))
    await eventually(lambda: any(each.version > 2 for each in records.page(IdempotentResponse, "acme")))
    counted.go.set()
    assert (await first).status_code == 202
    assert (await call("editor", "POST", "/counted", {}, idempotency_key="k1")).json() == {"call": 1}


async def test_a_response_is_kept_for_a_day_and_then_removed(
    call: Client, counted: Counted, records: RecordStore
) -> None:
    await call("editor", "POST", "/counted", {}, idempotency_key="k1")
    await call("editor", "POST", "/counted", {}, idempotency_key="k2")
    assert remove_old(records) == 0
    first, second = records.page(IdempotentResponse, "acme")
    for each in (first, second):
        old = now() - timedelta(hours=26)
        records.replace(each.model_copy(update={"created": old, "hour": f"{old:%Y-%m-%dT%H}"}))
    assert (await call("editor", "POST", "/counted", {}, idempotency_key="k1")).json() == {"call": 3}
    assert remove_old(records) == 1
    assert records.count(IdempotentResponse, "acme") == 1


async def test_a_new_keys_secret_part_is_neither_kept_nor_shown_twice(call: Client, records: RecordStore) -> None:
    body = {"name": "ci", "role": "viewer"}
    made = await call("owner", "POST", "/keys", body, idempotency_key="k1")
    assert made.status_code == 201
    again = await call("owner", "POST", "/keys", body, idempotency_key="k1")
    assert (again.status_code, again.json()["type"]) == (409, "urn:evolverpc:shown-once")
    assert records.count(ApiKey, TENANTS, {"owner": "acme"}) == 6
    kept = [*records.page(IdempotentResponse, "acme"), *records.page(ApiKey, TENANTS)]
    stored = "".join(each.model_dump_json() for each in kept)
    assert made.json()["key"].rpartition("_")[2] not in stored + again.text
