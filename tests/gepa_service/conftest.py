"""The records of a service, a whole service, an OIDC issuer, and a clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_service.records import RecordStore, open_records
from tests.gepa_service.auth.oidc_issuer import OidcIssuer, oidc_issuer
from tests.gepa_service.platform import Platform, platform


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordStore]:
    opened = open_records(str(tmp_path / "records.db"))
    yield opened
    opened.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Platform]:
    with platform(tmp_path) as opened:
        yield opened


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    with oidc_issuer() as served:
        yield served


class Clock:
    """Seconds, which a test lets pass."""

    present = 1000.0

    def __call__(self) -> float:
        return self.present


@pytest.fixture
def clock() -> Clock:
    return Clock()
