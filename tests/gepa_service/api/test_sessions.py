"""Sign in with a browser: who gets a session, which requests it counts for, and what ends it."""

from dataclasses import replace
from http.cookies import SimpleCookie

import httpx
import pytest

from gepa_service.api.app import create_app
from gepa_service.auth.keys import key_of_owner, public_id_of, revoke_key
from gepa_service.model.work import Work
from gepa_service.service import Service
from tests.gepa_service.api.conftest import URL, Client, Tokens
from tests.gepa_service.serving import called

OWN = {"origin": URL, "sec-fetch-site": "same-origin"}


async def signed_in(call: Client, kind: str = "editor") -> httpx.Response:
    response = await call(None, "POST", "/session", {"token": call.tokens[kind]}, **OWN)
    assert response.status_code == 200, response.text
    return response


async def test_a_key_is_exchanged_for_a_cookie_that_no_script_and_no_other_site_gets(call: Client) -> None:
    response = await signed_in(call)
    assert response.json() == {
        "tenant": "acme",
        "tenant_name": "acme",
        "role": "editor",
        "actor": f"key:{public_id_of(call.tokens['editor'])}",
    }
    cookie = SimpleCookie(response.headers["set-cookie"])["gepa_session"]
    assert cookie["httponly"] and cookie["samesite"].lower() == "strict" and cookie["path"] == "/"
    assert call.tokens["editor"] not in response.text + response.headers["set-cookie"]
    assert (await call(None, "GET", "/session")).json()["role"] == "editor"
    assert (await call(None, "GET", "/jobs")).status_code == 200


async def test_a_token_that_is_not_valid_for_people_gets_no_session(call: Client) -> None:
    for kind in ("revoked", "expired", "job token"):
        response = await call(None, "POST", "/session", {"token": call.tokens[kind]}, **OWN)
        assert response.status_code == 401
        assert "set-cookie" not in response.headers
        assert response.json()["field"] == "token"


@pytest.mark.parametrize("port", ["", ":443"])
async def test_over_https_the_cookie_is_of_this_host_and_of_https_alone(
    service: Service, tokens: Tokens, port: str
) -> None:
    app = create_app(replace(service, public_url=f"https://gepa.example.org{port}"))
    async with called(app, "https://gepa.example.org") as http:
        own = {"origin": "https://gepa.example.org"}
        response = await http.post("/session", json={"token": tokens["editor"]}, headers=own)
        assert response.headers["set-cookie"].startswith("__Host-gepa_session=")
        assert "; Secure" in response.headers["set-cookie"] and "strict-transport-security" in response.headers
        pause = "/job/absent/pause"
        assert (await http.post(pause, headers=own)).status_code == 404
        assert (await http.post(pause, headers={"origin": "http://gepa.example.org"})).status_code == 401


FOREIGN: list[dict[str, str]] = [
    {},
    {"origin": "null"},
    {"origin": "http://evil.example"},
    {"origin": URL + ".evil.example"},
    {"origin": URL, "sec-fetch-site": "same-site"},
    {"origin": URL, "sec-fetch-site": "cross-site"},
]


async def test_a_write_of_another_origin_has_no_session(call: Client, service: Service) -> None:
    job = Work(tenant="acme", id="job_1", repo_url="r", created_by="k")
    service.records.insert(job)
    await signed_in(call)
    for headers in FOREIGN:
        assert (await call(None, "POST", "/job/job_1/pause", **headers)).status_code == 401
    assert service.records.get(Work, "acme", "job_1") == job
    assert (await call(None, "POST", "/job/job_1/pause", **OWN)).status_code == 200


async def test_what_another_site_loads_has_no_session(call: Client) -> None:
    await signed_in(call)
    for site in ("cross-site", "same-site"):
        assert (await call(None, "GET", "/jobs", sec_fetch_site=site)).status_code == 401
    assert (await call(None, "GET", "/jobs", origin="http://evil.example")).status_code == 401


async def test_a_page_of_another_origin_cannot_sign_a_browser_in(call: Client) -> None:
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        response = await call(None, "POST", "/session", {"token": call.tokens["editor"]}, **headers)
        assert response.status_code == 403
        assert "set-cookie" not in response.headers


async def test_a_revoked_key_ends_its_sessions_at_once(call: Client, service: Service) -> None:
    await signed_in(call)
    record = key_of_owner(service.records, "acme", public_id_of(call.tokens["editor"]) or "")
    assert record is not None
    revoke_key(service.records, record)
    assert (await call(None, "GET", "/jobs")).status_code == 401


async def test_signing_out_takes_the_cookie_and_leaves_the_key(call: Client) -> None:
    await signed_in(call)
    assert (await call(None, "DELETE", "/session", **OWN)).status_code == 204
    assert (await call(None, "GET", "/jobs")).status_code == 401
    assert (await call("editor", "GET", "/jobs")).status_code == 200


async def test_a_key_in_a_header_comes_before_the_session(call: Client) -> None:
    await signed_in(call, "editor")
    assert (await call("other tenant's owner", "GET", "/session")).json()["tenant"] == "beta"
    assert (await call("revoked", "GET", "/session")).status_code == 401


async def test_the_page_is_sent_with_a_policy_that_loads_nothing_from_elsewhere(call: Client) -> None:
    response = await call(None, "GET", "/")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "http" not in policy
    for name, kind in (("page.js", "text/javascript"), ("page.css", "text/css")):
        sent = await call(None, "GET", f"/assets/{name}")
        assert sent.status_code == 200 and sent.headers["content-type"].startswith(kind)
        assert f"/assets/{name}" in response.text
    assert (await call(None, "GET", "/assets/LICENSES.txt")).status_code == 404
