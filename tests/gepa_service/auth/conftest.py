from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_service.records.sqlite import SqliteRecords
from tests.gepa_service.auth.oidc_issuer import OidcIssuer


@pytest.fixture
def records(tmp_path: Path) -> Iterator[SqliteRecords]:
    opened = SqliteRecords(tmp_path / "records.db")
    yield opened
    opened.close()


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    served = OidcIssuer()
    yield served
    served.close()
