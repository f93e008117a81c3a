"""Every error is a problem that names the field and the remedy, and shows nothing of the inside."""

import logging
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gepa_service.api import safety
from gepa_service.api.access import Reader
from gepa_service.auth.oidc import IssuerUnavailable
from gepa_service.auth.recognize import TenantNeeded
from gepa_service.records import RecordChanged, RecordStore
from gepa_service.secrets.master_key import MasterKeyError
from tests.gepa_service.api.conftest import Client


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert {"type", "title", "status", "detail"} <= body.keys()
    assert body["status"] == status
    return body


WRONG: list[tuple[Any, set[str]]] = [
    ({}, {"name", "role"}),
    ({"name": "", "role": "king"}, {"name", "role"}),
    ({"name": "a", "role": "owner", "expires_in_days": -1}, {"expires_in_days"}),
    ({"name": "a", "role": "owner", "hashed": "x"}, {"hashed"}),
    ([], {"body"}),
]


async def test_each_wrong_field_is_named_with_its_remedy(call: Client) -> None:
    for body, fields in WRONG:
        found = problem(await call("owner", "POST", "/keys", body), 422)
        assert {each["field"] for each in found["errors"]} == fields
        assert found["field"] in fields
        assert all(each["message"] for each in found["errors"])


async def test_a_wrong_field_inside_others_and_in_the_query_is_named_by_its_path(call: Client) -> None:
    header = {"host": "bad host", "header": "x"}
    found = problem(await call("owner", "PUT", "/secrets/A", {"value": "v", "headers": [header]}), 422)
    assert found["field"] == "headers.0.host"
    assert problem(await call("owner", "GET", "/keys?limit=0"), 422)["field"] == "limit"
    assert problem(await call("owner", "DELETE", "/keys/%20"), 422)["field"] == "key_id"


async def test_a_rejected_secret_is_not_repeated_in_the_response(call: Client) -> None:
    response = await call("owner", "PUT", "/secrets/A", {"value": "very-secret" * 2000})
    problem(response, 422)
    response_of_type = await call("owner", "PUT", "/secrets/A", {"value": {"very-secret": 1}})
    problem(response_of_type, 422)
    assert "very-secret" not in response.text + response_of_type.text


async def test_unknown_paths_methods_and_types_are_problems(call: Client) -> None:
    problem(await call("owner", "GET", "/nothing"), 404)
    found = await call("owner", "PUT", "/keys", {})
    problem(found, 405)
    assert "allow" in found.headers
    plain = {"Authorization": f"Bearer {call.tokens['owner']}", "Content-Type": "text/plain"}
    problem(await call.http.post("/keys", content='{"name": "a", "role": "owner"}', headers=plain), 415)


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_long_is_refused(call: Client, announced: bool) -> None:
    async def parts() -> Any:
        for _ in range(40):
            yield b"x" * (1 << 20)

    content = b"x" * (safety.LARGEST_BODY + 1) if announced else parts()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {call.tokens['owner']}"}
    problem(await call.http.post("/keys", content=content, headers=headers), 413)


async def test_every_wrong_token_has_the_same_response(call: Client) -> None:
    key = call.tokens["owner"]
    wrong = [None, "", "Bearer", "Basic abc", "Bearer x", f"Bearer {key}x", f"Bearer {key[:-1]}", "Bearer a.b.c", key]
    wrong += [f"Bearer {call.tokens[kind]}" for kind in ("expired", "revoked")]
    of_another_id = call.tokens["editor"].rpartition("_")[0] + "_" + key.rpartition("_")[2]
    wrong += [f"Bearer {of_another_id}", f"Bearer {key[:-1]}{'0' if key[-1] != '0' else '1'}"]
    found = set()
    for given in wrong:
        headers = {} if given is None else {"Authorization": given}
        response = await call.http.get("/keys", headers=headers)
        problem(response, 401)
        assert response.headers["www-authenticate"] == "Bearer"
        found.add(response.text)
    assert len(found) == 1


async def test_a_database_that_is_away_is_a_503_with_retry_after(call: Client, records: RecordStore) -> None:
    records.close()
    for method, path in (("GET", "/keys"), ("POST", "/keys"), ("GET", "/ready")):
        response = await call("owner", method, path, {"name": "a", "role": "owner"} if method == "POST" else None)
        found = problem(response, 503)
        assert int(response.headers["retry-after"]) > 0
        assert "records.db" not in found["detail"]
    assert (await call(None, "GET", "/health")).json() == {"status": "ok"}


FAILURES = {
    "unexpected": (ValueError("with secret text"), 500),
    "issuer": (IssuerUnavailable("with secret text"), 503),
    "changed": (RecordChanged("with secret text"), 409),
    "master": (MasterKeyError("with secret text"), 503),
    "tenant": (TenantNeeded(["acme", "beta"]), 400),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_an_exception_leaves_without_its_text_and_is_logged_if_it_is_unexpected(
    call: Client, app: FastAPI, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    error, status = FAILURES[failure]

    async def fail(caller: Reader) -> None:
        raise error

    app.add_api_route("/failing", fail)
    with caplog.at_level(logging.WARNING):
        response = await call("viewer", "GET", "/failing")
    found = problem(response, status)
    assert "secret text" not in response.text
    if status == 500:
        assert found["incident"] in caplog.text
        assert "with secret text" in caplog.text


async def test_responses_carry_headers_for_browsers_also_errors(call: Client) -> None:
    for response in (await call("owner", "GET", "/keys"), await call(None, "GET", "/nothing")):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]


async def test_a_request_to_another_host_is_refused(call: Client) -> None:
    for host in ("service", "SERVICE:8080", "127.0.0.1:5000"):
        assert (await call("owner", "GET", "/keys", host=host)).status_code == 200
    for host in ("elsewhere.example", "service.elsewhere.example", "[", ""):
        assert (await call("owner", "GET", "/keys", host=host)).status_code == 421
    assert (await call("owner", "GET", "/health", host="elsewhere.example")).status_code == 200
