"""Open what the API consists of, by the settings of an operator."""

import contextlib
from collections.abc import Iterator, Mapping

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from evolverpc_common.network_addresses import parse_networks
from gepa_service.api.service import Service
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.auth.oidc import OidcIssuer, OidcTokens
from gepa_service.auth.recognize import Recognizer
from gepa_service.cli.operator_settings import OperatorError, OperatorSettings, variable_of
from gepa_service.records.open_records import open_records
from gepa_service.records.store import RecordError
from gepa_service.repositories.github import GitHub, GitHubSettings
from gepa_service.repositories.policy import RepositoryPolicy
from gepa_service.secrets.master_key import MasterKeyError, source_of
from gepa_service.secrets.vault import Vault

GITHUB_FIELDS = (
    "github_app_id",
    "github_app_slug",
    "github_app_key_file",
    "github_client_id",
    "github_client_secret",
    "github_webhook_secret",
)
KEY_BYTES = 32


@contextlib.contextmanager
def opened_service(settings: OperatorSettings, environment: Mapping[str, str]) -> Iterator[Service]:
    """Yield the parts of the API, whose database is closed at the end. `environment`: names the master key.

    Raises:
        OperatorError: a setting or the master key is wrong, or the database cannot be opened.
    """
    try:
        masters = source_of(environment).read()
        with contextlib.closing(open_records(settings.records)) as records:
            vault = Vault(records, masters)
            vault.verify()
            tokens = JobTokens(records, [each.value for each in masters])
            issuers = [OidcIssuer(issuer, audience) for issuer, audience in settings.oidc_issuers]
            yield Service(
                records=records,
                journals=settings.journals,
                recognize=Recognizer(records, tokens, OidcTokens(issuers)),
                public_url=settings.public_url.rstrip("/"),
                repositories=RepositoryPolicy(
                    allow_local=settings.allow_local, allow_networks=parse_networks(settings.allow_networks)
                ),
                github=_github(settings, masters[0].value),
                webhook_key=_derived(masters[0].value, b"evolverpc webhooks 1"),
                vault=vault,
            )
    except (MasterKeyError, RecordError, ValueError) as error:
        raise OperatorError(str(error)) from error


def _github(settings: OperatorSettings, master: bytes) -> GitHub | None:
    missing = [variable_of(name) for name in GITHUB_FIELDS if getattr(settings, name) is None]
    if len(missing) == len(GITHUB_FIELDS):
        return None
    if missing:
        raise OperatorError(f"the GitHub App needs all of its variables; set {', '.join(missing)} too")
    assert settings.github_app_key_file is not None  # noqa: S101  none is missing
    try:
        key = settings.github_app_key_file.read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        raise OperatorError(f"{variable_of('github_app_key_file')} cannot be read: {error}") from None
    return GitHub(
        GitHubSettings(
            app_id=settings.github_app_id or "",
            slug=settings.github_app_slug or "",
            client_id=settings.github_client_id or "",
            client_secret=settings.github_client_secret or "",
            key=key,
            webhook_secret=settings.github_webhook_secret or "",
            state_key=_derived(master, b"evolverpc github 1"),
        )
    )


def _derived(master: bytes, purpose: bytes) -> bytes:
    key: bytes = HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose).derive(master)
    return key
