"""People sign in at an OIDC issuer, in their browser, and have a session of the service then."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from threading import Semaphore
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from gepa_service.api.app import create_app
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.auth.oidc import OidcIssuer as Configured
from gepa_service.auth.oidc import OidcTokens
from gepa_service.auth.recognize import Recognizer, make_member
from gepa_service.records import RecordStore
from tests.gepa_service.auth.oidc_issuer import AUDIENCE, OidcIssuer
from tests.gepa_service.serving import called, service_of

URL = "https://gepa.example.org"


@pytest.fixture
async def browser(records: RecordStore, issuer: OidcIssuer, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A browser at the service, which takes people of the issuer."""
    issuer.add_key("k1")
    configured = Configured(issuer.url, AUDIENCE, issuer.secret)
    oidc = OidcTokens([configured])
    recognize = Recognizer(records, JobTokens(records, [b"m" * 32]), oidc)
    made = service_of(records, str(tmp_path / "journals.db"), recognize)
    async with called(create_app(replace(made, public_url=URL, oidc=oidc, sign_ins=Semaphore(1))), URL) as http:
        yield http


def callback(issuer: OidcIssuer) -> str:
    return f"{URL}/session/oidc/callback/{issuer.url.removeprefix('http://')}"


async def redirected_back(browser: httpx.AsyncClient, issuer: OidcIssuer, **query: str) -> str:
    """Begin a sign-in; return the address that the issuer redirects to."""
    begun = await browser.get("/session/oidc", params={"issuer": issuer.url, **query})
    assert begun.status_code == 303, begun.text
    assert "samesite=lax" in begun.headers["set-cookie"].lower()
    async with httpx.AsyncClient(trust_env=False) as elsewhere:
        back = (await elsewhere.get(begun.headers["location"])).headers["location"]
    assert back.startswith(callback(issuer) + "?")
    return str(back)


async def test_a_member_is_signed_in_by_the_issuers_page_alone(
    browser: httpx.AsyncClient, issuer: OidcIssuer, records: RecordStore
) -> None:
    records.insert(make_member("acme", issuer.url, "ann", "editor"))
    done = await browser.get(await redirected_back(browser, issuer))
    assert (done.status_code, done.headers["location"]) == (303, "/"), done.text
    assert "samesite=strict" in done.headers["set-cookie"].lower()
    session = (await browser.get("/session")).json()
    assert (session["tenant"], session["role"], session["actor"]) == ("acme", "editor", "oidc:ann")


async def test_a_member_of_several_tenants_chooses_one(
    browser: httpx.AsyncClient, issuer: OidcIssuer, records: RecordStore
) -> None:
    for tenant in ("acme", "beta"):
        records.insert(make_member(tenant, issuer.url, "ann", "viewer"))
    records.insert(make_member("gamma", "https://elsewhere.example", "ann", "owner"))
    asked = await browser.get(await redirected_back(browser, issuer))
    assert asked.status_code == 403
    assert [f"tenant={each}" in asked.text for each in ("acme", "beta", "gamma")] == [True, True, False]
    assert (await browser.get(await redirected_back(browser, issuer, tenant="gamma"))).status_code == 403
    await browser.get(await redirected_back(browser, issuer, tenant="beta"))
    assert (await browser.get("/session")).json()["tenant"] == "beta"


async def test_a_person_who_is_refused_reads_what_to_do_on_a_page_like_the_others(
    browser: httpx.AsyncClient, issuer: OidcIssuer
) -> None:
    answer = await browser.get(await redirected_back(browser, issuer))
    assert (answer.status_code, "page.css" in answer.text) == (403, True)
    assert f"the issuer {issuer.url} and the subject ann" in answer.text
    issuer.keys = {"k1": ("HS256", "s" * 64)}
    answer = await browser.get(await redirected_back(browser, issuer))
    assert ("signed with HS256" in answer.text, "member" in answer.text) == (True, False), answer.text
    assert (await browser.get("/session")).status_code == 401


async def test_a_redirect_of_another_sign_in_is_refused(
    browser: httpx.AsyncClient, issuer: OidcIssuer, records: RecordStore
) -> None:
    records.insert(make_member("acme", issuer.url, "ann", "editor"))
    back = await redirected_back(browser, issuer)
    given = dict(parse_qsl(urlsplit(back).query))
    for wrong in (
        {"code": given["code"], "state": "another"},
        {"code": "another", "state": given["state"]},
        {"state": given["state"], "error": "access_denied", "error_description": "<b>no</b>"},
        {},
    ):
        answer = await browser.get(callback(issuer), params=wrong)
        assert answer.status_code == 403, wrong
        assert "<b>" not in answer.text
    issuer.nonce = "of another sign-in"
    assert (await browser.get(await redirected_back(browser, issuer))).status_code == 403
    issuer.nonce = None
    other = await redirected_back(browser, issuer)
    assert (await browser.get(other.replace("/callback/", "/callback/another."))).status_code == 403
    foreign = {"sec-fetch-site": "cross-site"}
    begun = await browser.get("/session/oidc", params={"issuer": issuer.url}, headers=foreign)
    assert (begun.status_code, "set-cookie" in begun.headers) == (403, False)
    browser.cookies.clear()
    assert (await browser.get(other)).status_code == 403
    assert (await browser.get("/session")).status_code == 401


async def test_an_issuer_that_is_away_is_named_and_one_without_a_page_has_no_link(
    browser: httpx.AsyncClient, issuer: OidcIssuer
) -> None:
    unknown = await browser.get("/session/oidc", params={"issuer": "https://elsewhere.example"})
    assert (unknown.status_code, "https://elsewhere.example is no OIDC issuer" in unknown.text) == (403, True)
    issuer.status = 503
    away = await browser.get("/session/oidc", params={"issuer": issuer.url})
    assert (away.status_code, f"{issuer.url}/.well-known/openid-configuration answers 503" in away.text) == (403, True)
    assert (await browser.get("/session/ways")).json()["pages"] == [issuer.url]
    issuer.status = 200
    del issuer.places["authorization_endpoint"]
    assert (await browser.get("/session/ways")).json() == {"issuers": [issuer.url], "pages": []}
