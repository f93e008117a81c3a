"""Every route, sent what no client should send: a documented problem, and no state that breaks a list."""

import json
from collections.abc import Mapping
from typing import Any

import httpx
from fastapi import FastAPI

from gepa_service.service import Service
from tests.gepa_service.api.conftest import Client
from tests.gepa_service.api.examples_of_routes import EXAMPLES, RESOURCES

DEEP: Any = "x"
for _ in range(200):
    DEEP = [DEEP]

BODIES: list[bytes] = [
    b"{",
    b"\xff\xfe",
    b'{"a": NaN}',
    b'{"name": "\\ud800", "role": "owner", "value": "\\ud800", "issuer": "\\ud800", "subject": "\\ud800"}',
    b'{"name": "\\u0000", "role": "viewer", "value": "\\u0000", "issuer": "https://a", "subject": "\\u0000"}',
    b'{"name": "' + b"x" * 100_000 + b'"}',
    b"[" * 100_000,
    json.dumps({"value": DEEP, "name": DEEP, "options": DEEP, "reason": DEEP}).encode(),
    b'{"max_metric_calls": 99999999999999999999999999, "expires_in_days": 1e308, "limit": -1}',
    b'{"repo_url": "https://a:b@[", "client_id": "../.."}',
]
OF_BROWSERS = "GET /session/oidc"
IDS = ["%00", "%FF", "..%2F..", "x" * 5000, "%20", "%F0%9F%98%80", "'"]
QUERIES = ["?limit=x", "?limit=99999999999999999999", "?after=%00", "?status=x"]


def problem(response: httpx.Response, documented: Mapping[str, Any], what: object) -> None:
    """A response has a documented status, if the document has its route, and an error the form of every error.

    Errors of a sign-in are pages: a browser shows them.
    """
    assert response.status_code < 500, (what, response.text)
    assert not documented or str(response.status_code) in documented, (what, response.text)
    if response.status_code >= 400 and OF_BROWSERS not in str(what):
        assert response.headers["content-type"] == "application/problem+json", (what, response.text)
        assert response.json()["status"] == response.status_code
        assert "Traceback" not in response.text


OF_PROCESSES = {"/journal/": "job", "/attempt/": "attempt"}


async def test_odd_requests_are_answered_as_documented(call: Client, app: FastAPI, service: Service) -> None:
    for name in sorted(EXAMPLES):
        await ask_oddly(call, app.openapi(), service, name)


async def ask_oddly(call: Client, openapi: Mapping[str, Any], service: Service, name: str) -> None:
    """Send a route what no client should send."""
    method, path = name.split(" ", 1)
    example = EXAMPLES[name]
    kind = next((f"{of} token" for part, of in OF_PROCESSES.items() if part in path), "owner")
    id_ = RESOURCES[example.resource](service, "acme") if example.resource else "id"
    headers = {"Authorization": f"Bearer {call.tokens[kind]}", "Content-Type": "application/json", **example.headers}
    place = example.path(path, id_)
    documented = openapi["paths"].get(path, {}).get(method.lower(), {}).get("responses", {})
    if method != "GET":
        for body in BODIES:
            response = await call.http.request(method, place, content=body, headers=headers)
            problem(response, documented, (name, body[:100]))
    if "{" in path:
        for odd in IDS:
            content = json.dumps(example.content("id")).encode()
            response = await call.http.request(method, example.path(path, odd), content=content, headers=headers)
            problem(response, documented, (name, odd))
    if method == "GET":
        for query in QUERIES:
            response = await call.http.request(method, place + query, headers=headers)
            problem(response, documented, (name, query))


async def test_texts_that_were_accepted_can_be_listed(call: Client) -> None:
    odd = "\u0000\u202e\U0001f600 \\ \" ' <b>"
    for method, path, body in (
        ("POST", "/keys", {"name": odd, "role": "viewer"}),
        ("PUT", "/secrets/A", {"value": odd}),
        (
            "POST",
            "/members",
            {"issuer": "https://a.example/\u202e", "subject": odd.replace("\0", ""), "role": "viewer"},
        ),
    ):
        assert (await call("owner", method, path, body)).status_code < 300
    names = [each["name"] for each in (await call("owner", "GET", "/keys")).json()["items"]]
    assert odd in names
    for path in ("/secrets", "/members", "/audit"):
        assert (await call("owner", "GET", path)).status_code == 200
