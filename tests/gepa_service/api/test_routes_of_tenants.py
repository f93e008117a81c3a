"""Keys, members, secrets, usage, the audit log, and the state of the service."""

import contextlib
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from gepa_service.api.app import create_app
from gepa_service.api.request_log import JsonLines
from gepa_service.jobs.month_spending import month_id
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.model.tenant import AuditEntry, Quotas, Usage
from gepa_service.model.work import Work
from gepa_service.records import RecordStore, id_at, new_id, now
from gepa_service.secrets.master_key import METRICS
from gepa_service.service import Service
from tests.gepa_service.api.conftest import MASTER, URL, Client

MEMBER = {"issuer": "https://issuer.example", "subject": "ann@example.org", "role": "viewer"}


async def test_a_new_key_works_at_once_with_its_role_until_it_is_revoked(call: Client) -> None:
    made = (await call("owner", "POST", "/keys", {"name": "ci", "role": "viewer", "expires_in_days": 1})).json()
    call.tokens["new"] = made["key"]
    assert (await call("new", "GET", "/jobs")).status_code == 200
    revoked = await call("owner", "DELETE", f"/keys/{made['key_id']}")
    assert revoked.json()["revoked"] is not None
    assert (await call("new", "GET", "/jobs")).status_code == 401
    assert (await call("owner", "DELETE", f"/keys/{made['key_id']}")).json() == revoked.json()


async def test_keys_are_listed_in_pages_without_secret_parts_or_hashes(call: Client) -> None:
    made = [(await call("owner", "POST", "/keys", {"name": f"k{n}", "role": "viewer"})).json() for n in range(3)]
    listed, after = [], ""
    while True:
        page = await call("owner", "GET", f"/keys?limit=2{after}")
        assert "hashed" not in page.text
        assert not any(each["key"].rpartition("_")[2] in page.text for each in made)
        listed += page.json()["items"]
        if page.json()["next"] is None:
            break
        after = f"&after={page.json()['next']}"
    names = [each["name"] for each in listed]
    assert names[:3] == ["k2", "k1", "k0"]
    assert set(names[3:]) == {"owner", "editor", "viewer", "expired", "revoked"}


async def test_a_member_is_added_once_and_gets_the_last_role(call: Client) -> None:
    first = (await call("owner", "POST", "/members", MEMBER)).json()
    second = (await call("owner", "POST", "/members", MEMBER | {"role": "editor"})).json()
    assert first["member_id"] == second["member_id"]
    (listed,) = (await call("owner", "GET", "/members")).json()["items"]
    assert {name: listed[name] for name in MEMBER} == MEMBER | {"role": "editor"}
    assert (await call("owner", "DELETE", f"/members/{first['member_id']}")).status_code == 204
    assert (await call("owner", "GET", "/members")).json()["items"] == []


WRONG = [
    ("the-value", {"host": "10.0.0.1"}, "not a public host"),
    ("the-value", {"host": "169.254.169.254:443"}, "not a public host"),
    ("two\nlines", {"host": "api.example.invalid"}, "line break"),
    ("the-value", {"host": "api.example.invalid", "header": "connection"}, "not the name of a header"),
    ("the-value", {"host": "api.example.invalid:70000"}, "not a host"),
    ("the-value", {"host": "api.example.invalid", "prefix": "key="}, "prefix"),
]


async def test_a_header_that_the_gateway_cannot_or_may_not_set_is_refused(call: Client) -> None:
    for value, header, words in WRONG:
        refused = await call("owner", "PUT", "/secrets/MODEL_KEY", {"value": value, "headers": [header]})
        assert refused.status_code == 422, refused.text
        assert words in refused.text
        assert value not in refused.text
    assert (await call("owner", "GET", "/secrets")).json()["items"] == []


async def test_a_secret_is_written_and_listed_and_never_returned(call: Client, service: Service) -> None:
    header = {"host": "api.example.org", "header": "x-api-key", "prefix": ""}
    for value in ("first-value", "second-value"):
        put = await call("owner", "PUT", "/secrets/MODEL_KEY", {"value": value, "headers": [header]})
        assert (put.status_code, put.content) == (204, b"")
    listed = await call("owner", "GET", "/secrets")
    (found,) = listed.json()["items"]
    assert (found["name"], found["headers"]) == ("MODEL_KEY", [header])
    assert "value" not in listed.text
    assert revealed(service.vault, "acme").variables["MODEL_KEY"] == "second-value"
    assert (await call("owner", "DELETE", "/secrets/MODEL_KEY")).status_code == 204
    assert (await call("owner", "DELETE", "/secrets/MODEL_KEY")).status_code == 404


async def test_a_secrets_name_is_one_of_a_variable_that_decides_nothing_of_the_machine(call: Client) -> None:
    for name in ("1A", "A-B", "A B", "x" * 65, "%00", "A%2FB"):
        assert (await call("owner", "PUT", f"/secrets/{name}", {"value": "v"})).status_code in (404, 422)
    for name in (
        *("GIT_SSH_COMMAND", "LD_PRELOAD", "NVM_DIR", "RAY_AUTH_TOKEN"),
        *("HOME", "PATH", "https_proxy", "OPENAI_BASE_URL"),
    ):
        refused = await call("owner", "PUT", f"/secrets/{name}", {"value": "v"})
        assert (refused.status_code, refused.json()["field"]) == (422, "name")
        assert "never passed on" in refused.json()["detail"]
    assert (await call("owner", "GET", "/secrets")).json()["items"] == []


async def test_a_service_without_master_key_keeps_no_secrets(service: Service, call: Client) -> None:
    app = create_app(replace(service, vault=None))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL) as http:
        headers = {"Authorization": f"Bearer {call.tokens['owner']}"}
        refused = await http.put("/secrets/A", json={"value": "v"}, headers=headers)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:evolverpc:no-master-key")


async def test_each_write_is_recorded_with_caller_route_and_status_and_nothing_of_its_body(
    call: Client, records: RecordStore
) -> None:
    await call("owner", "PUT", "/secrets/MODEL_KEY", {"value": "very-secret"})
    await call("viewer", "PUT", "/secrets/MODEL_KEY", {"value": "very-secret"})
    await call("owner", "DELETE", "/keys/absent")
    await call("owner", "GET", "/keys")
    await call("revoked", "DELETE", "/keys/absent")
    log = await call("owner", "GET", "/audit")
    items = log.json()["items"]
    assert [(each["action"], each["resource"], each["status"]) for each in items] == [
        ("DELETE /keys/{key_id}", "/keys/absent", 404),
        ("PUT /secrets/{name}", "/secrets/MODEL_KEY", 403),
        ("PUT /secrets/{name}", "/secrets/MODEL_KEY", 204),
    ]
    assert len({each["actor"] for each in items}) == 2
    assert "very-secret" not in log.text
    mine = await call("owner", "GET", f"/audit?actor={items[1]['actor']}")
    assert [each["status"] for each in mine.json()["items"]] == [403]
    assert records.count(AuditEntry, "beta") == 0


async def test_people_read_names_of_keys_where_they_would_look_for_ids(call: Client, records: RecordStore) -> None:
    waits = job()
    records.insert(waits)
    cancelled = (await call("editor", "POST", f"/job/{waits.id}/cancel")).json()
    assert cancelled["reason"] == "cancelled by editor"
    assert (await call("owner", "GET", "/audit")).json()["items"][0]["actor_name"] == "editor"


async def test_a_write_whose_api_was_killed_is_in_the_log_with_an_unknown_outcome(
    call: Client, records: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(records, "replace", killed)
        await call("owner", "POST", "/members", MEMBER)
    (entry,) = records.page(AuditEntry, "acme")
    assert (entry.action, entry.resource, entry.status) == ("POST", "/members", 0)


def job(**fields: object) -> Work:
    return Work(tenant="acme", id=new_id("job"), repo_url="r", created_by="c", **fields)


async def test_usage_counts_this_months_jobs_their_cost_and_requests(call: Client, records: RecordStore) -> None:
    running, foreign, pending = job(status="running"), job().model_copy(update={"tenant": "beta"}), job()
    month = now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    of_month = [id_at("job", month + timedelta(seconds=at)) for at in (-1, 1)]
    before, ended = (job(status="completed").model_copy(update={"id": each}) for each in of_month)
    for each in (running, ended, pending, foreign, before):
        records.insert(each)
    records.insert(Usage(tenant="acme", id=month_id(now()), usd=1.25))
    before_requests = (await call("viewer", "GET", "/usage")).json()
    found = (await call("viewer", "GET", "/usage")).json()
    assert found["month"] == f"{now():%Y-%m}"
    assert (found["jobs"], found["usd"]) == (4, 1.25)  # with the running job of the job token
    assert (found["jobs_queued"], found["jobs_running"]) == (1, 2)
    assert found["requests"] == before_requests["requests"] + 1
    assert found["quotas"] == Quotas().model_dump()


def replaced_by_a_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


async def test_the_service_is_ready_only_while_its_databases_answer(call: Client, service: Service) -> None:
    assert (await call(None, "GET", "/ready")).json() == {"status": "ready"}
    replaced_by_a_folder(Path(service.journals))
    refused = await call(None, "GET", "/ready")
    assert refused.status_code == 503
    assert "the store of runs" in refused.json()["detail"]
    assert (await call(None, "GET", "/health")).status_code == 200


async def test_figures_are_for_the_operator_alone_and_state_requests_work_its_queue_sandboxes_and_spending(
    call: Client, records: RecordStore
) -> None:
    for each in (job(created=now() - timedelta(seconds=90)), job(status="running")):
        records.insert(each)
    records.insert(
        job(status="running", settings={"sandboxes": 3}).model_copy(update={"what": "step", "tenant": "beta"})
    )
    records.insert(Usage(tenant="acme", id=month_id(now()), usd=0.5))
    await call("owner", "DELETE", "/keys/absent")
    await call("owner", "GET", "/nothing/of/acme")
    await call.http.request("STRANGE", "/keys")
    for kind in (None, "owner"):
        assert (await call(kind, "GET", "/metrics")).status_code == 401
    call.tokens["collector"] = MASTER.derived(METRICS).hex()
    assert (await call("collector", "GET", "/jobs")).status_code == 401
    text = (await call("collector", "GET", "/metrics")).text
    assert 'gepa_service_requests_total{method="DELETE",route="/keys/{key_id}",status="404"} 1.0' in text
    assert 'gepa_service_requests_total{method="GET",route="unknown",status="404"} 1.0' in text
    assert 'method="other"' in text
    assert 'gepa_service_works{status="pending",what="job"} 1.0' in text
    assert 'gepa_service_works{status="running",what="step"} 1.0' in text
    assert 'gepa_service_tenant_works{status="pending",tenant="acme"} 1.0' in text
    assert 'gepa_service_tenant_sandboxes{tenant="beta"} 3.0' in text
    assert 'gepa_service_tenant_month_usd{tenant="acme"} 0.5' in text
    assert 90 <= float(re.findall(r"^gepa_service_queue_age_seconds (.*)$", text, re.MULTILINE)[0]) < 600


async def test_each_log_line_is_json_with_the_request_its_tenant_and_its_work(
    call: Client, caplog: pytest.LogCaptureFixture, records: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = job()
    records.insert(made)
    lines: list[str] = []
    monkeypatch.setattr(caplog.handler, "format", lambda record: lines.append(JsonLines("api").format(record)) or "")
    with caplog.at_level("INFO", logger="gepa_service"):
        response = await call("viewer", "GET", f"/job/{made.id}", X_Request_ID="given-1")
        other = await call(None, "GET", "/health", X_Request_ID="not one\\n")
        for path in ("/execute_step/s", "/api/internal/rollouts/batch/b"):
            await call("viewer", "GET", path)
    assert response.headers["x-request-id"] == "given-1"
    assert re.fullmatch("[0-9a-f]{32}", other.headers["x-request-id"])
    [found, _, step, batch] = [json.loads(line) for line in lines]
    assert (step["work"], batch["work"]) == ("s", "b")
    expected = {"request": "given-1", "tenant": "acme", "work": made.id, "status": 200, "message": "GET /job/{job_id}"}
    assert {name: found[name] for name in expected} == expected
