"""Tokens of OIDC issuers, against an issuer on loopback."""

import base64
import hmac
import json
import time
from typing import Any

import jwt
import pytest

from gepa_service.auth import oidc
from gepa_service.auth.oidc import Identity, IssuerUnavailable, OidcTokens, TokenRefused
from tests.gepa_service.auth.oidc_issuer import AUDIENCE, OidcIssuer, oidc_issuer
from tests.gepa_service.conftest import Clock


@pytest.fixture
def tokens(issuer: OidcIssuer, clock: Clock) -> OidcTokens:
    issuer.add_key("k1")
    return OidcTokens([oidc.OidcIssuer(issuer.url, AUDIENCE)], clock)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_token_of_the_issuer_names_its_subject(issuer: OidcIssuer, tokens: OidcTokens, algorithm: str) -> None:
    issuer.add_key("k2", algorithm)
    assert tokens.check(issuer.token("k2")) == Identity(issuer.url, "ann")


def refused(tokens: OidcTokens, token: str) -> bool:
    with pytest.raises(TokenRefused):
        tokens.check(token)
    return True


PRESENT = int(time.time())
WRONG: list[dict[str, Any]] = [
    {"aud": "another-service"},
    {"aud": None},
    {"iss": "https://elsewhere.example"},
    {"exp": PRESENT - 60},
    {"exp": None},
    {"iat": None},
    {"nbf": PRESENT + 3600},
    {"iat": PRESENT + 3600},
    {"sub": None},
    {"sub": ""},
    {"sub": "s" * 256},
]


def test_a_token_with_a_wrong_claim_is_refused(issuer: OidcIssuer, tokens: OidcTokens) -> None:
    assert tokens.check(issuer.token("k1"))
    for changes in WRONG:
        assert refused(tokens, issuer.token("k1", **changes)), changes


def test_a_token_without_signature_or_signed_by_another_issuer_or_the_public_key_as_a_password_is_refused(
    issuer: OidcIssuer, tokens: OidcTokens
) -> None:
    header, body, _ = issuer.token("k1").split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"k1"}').decode().rstrip("=")
    public = json.dumps(issuer.key_set()["keys"][0]).encode()
    hs256 = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"k1"}').decode().rstrip("=")
    mac = hmac.digest(public, f"{hs256}.{body}".encode(), "sha256")
    confused = f"{hs256}.{body}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    with oidc_issuer() as other:
        other.add_key("k1")
        for forged in (f"{none}.{body}.", f"{header}.{body}.", confused, other.token("k1", iss=issuer.url)):
            assert refused(tokens, forged)


def test_a_key_for_another_use_or_too_short_is_not_used(issuer: OidcIssuer, tokens: OidcTokens) -> None:
    issuer.add_key("short", bits=1024)
    issuer.extra = [None, {}, {"kty": "RSA"}, {"kty": "oct", "k": "AAAA", "kid": "k3", "alg": "HS256"}]
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        token = issuer.token("short")
    assert refused(tokens, token)
    assert tokens.check(issuer.token("k1"))


def test_a_new_key_of_the_issuer_is_found_without_a_restart(
    issuer: OidcIssuer, tokens: OidcTokens, clock: Clock
) -> None:
    assert tokens.check(issuer.token("k1"))
    issuer.add_key("k2")
    clock.present += oidc.PAUSE_S
    assert tokens.check(issuer.token("k2"))
    assert refused(tokens, issuer.token("k1", {"kid": None})), "it may be signed by either"


def test_tokens_with_invented_key_ids_do_not_make_the_service_ask_the_issuer_each_time(
    issuer: OidcIssuer, tokens: OidcTokens
) -> None:
    for number in range(20):
        assert refused(tokens, issuer.token("k1", {"kid": f"invented{number}"}))
    assert issuer.requests == 2  # the configuration and the keys, once


def test_an_issuer_that_does_not_answer_is_reported_as_such_and_asked_again_later(
    issuer: OidcIssuer, tokens: OidcTokens, clock: Clock
) -> None:
    issuer.status = 500
    token = issuer.token("k1")
    for _ in range(3):
        with pytest.raises(IssuerUnavailable):
            tokens.check(token)
    assert issuer.requests == 1
    issuer.status, issuer.named = 200, "https://elsewhere.example"
    clock.present += oidc.FAILED_PAUSE_S
    with pytest.raises(IssuerUnavailable, match="describes another issuer"):
        tokens.check(token)
    issuer.named = None
    clock.present += oidc.FAILED_PAUSE_S
    assert tokens.check(token)


def test_known_keys_are_used_for_a_day_while_the_issuer_does_not_answer(
    issuer: OidcIssuer, tokens: OidcTokens, clock: Clock
) -> None:
    token = issuer.token("k1")
    assert tokens.check(token)
    issuer.status = 500
    clock.present += oidc.FRESH_S
    assert tokens.check(token)
    clock.present += oidc.STALE_S
    with pytest.raises(IssuerUnavailable):
        tokens.check(token)
