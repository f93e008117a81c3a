"""The settings of a service in containers: what is read from variables, and what is refused with which words."""

import base64
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from gepa_service.cli.service_configuration import ConfigurationError, opened_in_container
from tests.gepa_client.journal.conftest import mongo_server, mongo_url
from tests.gepa_service.github_server import LoopbackGitHub
from tests.gepa_service.platform import MASTER

__all__ = ["mongo_server", "mongo_url"]
URL = "mongodb://db.example/service"
GOOD = {"GEPA_SERVICE_DATABASE": URL, "GEPA_SERVICE_JOURNALS": URL, "GEPA_SERVICE_MASTER_KEY": "k"}
SECRET = "the secret 'mine'"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"GEPA_SERVICE_DATABASE": ""}, "GEPA_SERVICE_DATABASE must be set: add it to the secret 'mine'"),
        ({"GEPA_SERVICE_JOURNALS": "  "}, "GEPA_SERVICE_JOURNALS must be set"),
        ({"GEPA_SERVICE_DATABASE": "/data/records.db"}, "GEPA_SERVICE_DATABASE names no MongoDB database"),
        ({"GEPA_SERVICE_JOURNALS": "postgres://db/runs"}, "mongodb:// or mongodb\\+srv:// URL"),
        ({"GEPA_SERVICE_GITHUB_APP_TOML": 'app_id = "1"'}, "belong together: set both in the secret 'mine'"),
        ({}, "set GEPA_SERVICE_PUBLIC_URL"),
    ],
)
def test_what_is_missing_or_names_a_file_is_refused_and_no_value_is_shown(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused, opened_in_container(GOOD | change, SECRET, None):
        pass
    assert "records.db" not in str(refused.value)


def test_a_service_is_opened_with_its_app(mongo_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEPA_SERVICE_MASTER_KEY", base64.b64encode(MASTER).decode())
    monkeypatch.delenv("GEPA_SERVICE_MASTER_KEY_FILE", raising=False)
    monkeypatch.setenv("OIDC_SECRET", "of the client")
    github = LoopbackGitHub(tmp_path, rsa.generate_private_key(public_exponent=65537, key_size=2048))
    variables = {
        **os.environ,
        "GEPA_SERVICE_DATABASE": mongo_url,
        "GEPA_SERVICE_JOURNALS": mongo_url,
        "GEPA_SERVICE_ALLOW_NETWORKS": "10.0.0.0/8 192.0.2.0/24",
        "GEPA_SERVICE_OIDC": "https://a.example us\nhttps://b.example us OIDC_SECRET",
        **github.variables(),
    }
    with opened_in_container(variables, SECRET, "https://api.example") as service:
        assert service.public_url == "https://api.example"
        assert [str(each) for each in service.repositories.allow_networks] == ["10.0.0.0/8", "192.0.2.0/24"]
        assert [each.secret for each in service.oidc.issuers.values()] == [None, "of the client"]
        assert service.github is not None
