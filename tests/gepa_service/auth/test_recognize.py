"""From a token to a caller, of each kind."""

import pytest

from gepa_service.auth import oidc
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.auth.oidc import OidcTokens
from gepa_service.auth.recognize import LONGEST_TOKEN, Recognizer, make_member
from gepa_service.records import RecordStore
from tests.gepa_service.auth.oidc_issuer import AUDIENCE, OidcIssuer


@pytest.fixture
def recognize(records: RecordStore, issuer: OidcIssuer) -> Recognizer:
    issuer.add_key("k1")
    tokens = OidcTokens([oidc.OidcIssuer(issuer.url, AUDIENCE)])
    return Recognizer(records, JobTokens(records, [b"m" * 32]), tokens)


def test_a_very_long_token_is_refused_before_it_is_read(
    records: RecordStore, recognize: Recognizer, issuer: OidcIssuer
) -> None:
    records.insert(make_member("acme", issuer.url, "ann", "owner"))
    assert recognize(issuer.token("k1", more="x" * LONGEST_TOKEN)) is None
