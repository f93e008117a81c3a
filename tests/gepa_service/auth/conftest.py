from collections.abc import Iterator

import pytest

from tests.gepa_service.auth.oidc_issuer import OidcIssuer


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    served = OidcIssuer()
    yield served
    served.close()
