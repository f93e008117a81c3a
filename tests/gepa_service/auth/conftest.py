from collections.abc import Iterator

import pytest

from tests.gepa_service.auth.oidc_issuer import OidcIssuer, oidc_issuer


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    with oidc_issuer() as served:
        yield served
