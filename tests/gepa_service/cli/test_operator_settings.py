"""The variables of an operator: read, and refused with the name of the variable."""

from pathlib import Path

import pytest

from gepa_service.cli.open_service import opened_service
from gepa_service.cli.operator_settings import OperatorError, read_operator_settings

GIVEN = {
    "GEPA_SERVICE_RECORDS": "records.db",
    "GEPA_SERVICE_JOURNALS": "runs.db",
    "GEPA_SERVICE_PUBLIC_URL": "https://gepa.example.org",
}


def test_lists_are_separated_by_commas_or_spaces() -> None:
    settings = read_operator_settings(
        {
            **GIVEN,
            "GEPA_SERVICE_ALLOW_NETWORKS": "10.1.0.0/16, 10.2.0.0/16",
            "GEPA_SERVICE_OIDC_ISSUERS": "https://a.example|one https://b.example|two",
        }
    )
    assert settings.allow_networks == ("10.1.0.0/16", "10.2.0.0/16")
    assert settings.oidc_issuers == (("https://a.example", "one"), ("https://b.example", "two"))


def test_variables_of_users_and_of_the_master_key_are_no_settings() -> None:
    read_operator_settings({**GIVEN, "GEPA_SERVICE_KEY": "grk_1", "GEPA_SERVICE_MASTER_KEY_FILE": "key"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"GEPA_SERVICE_RECORDS": ""}, "set GEPA_SERVICE_RECORDS"),
        ({"GEPA_SERVICE_RECRODS": "a"}, "there is no setting GEPA_SERVICE_RECRODS"),
        ({"GEPA_SERVICE_PUBLIC_URL": "https://a.example/path"}, "GEPA_SERVICE_PUBLIC_URL: "),
        ({"GEPA_SERVICE_SANDBOX": "none"}, "GEPA_SERVICE_SANDBOX: "),
        ({"GEPA_SERVICE_OIDC_ISSUERS": "https://a.example"}, "GEPA_SERVICE_OIDC_ISSUERS: "),
    ],
)
def test_a_wrong_variable_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        read_operator_settings({**GIVEN, **given})


def test_a_part_of_the_github_app_names_what_is_missing(tmp_path: Path) -> None:
    environment = {
        **GIVEN,
        "GEPA_SERVICE_RECORDS": str(tmp_path / "records.db"),
        "GEPA_SERVICE_MASTER_KEY": "A" * 43 + "=",
        "GEPA_SERVICE_GITHUB_APP_ID": "1",
    }
    settings = read_operator_settings(environment)
    with (
        pytest.raises(OperatorError, match=r"set GEPA_SERVICE_GITHUB_APP_SLUG, .* too"),
        opened_service(settings, environment),
    ):
        pass


def test_a_service_without_a_master_key_is_refused(tmp_path: Path) -> None:
    settings = read_operator_settings({**GIVEN, "GEPA_SERVICE_RECORDS": str(tmp_path / "records.db")})
    with pytest.raises(OperatorError, match="set one of GEPA_SERVICE_MASTER_KEY_FILE"), opened_service(settings, {}):
        pass
