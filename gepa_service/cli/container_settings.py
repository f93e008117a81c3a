"""The settings of a service whose parts run in containers that share no file: all of them are variables."""

import contextlib
import tomllib
from collections.abc import Iterator, Mapping
from functools import partial

from gepa_service.cli.service_parts import ConfigurationError, github_app, opened_service
from gepa_service.repositories.github_installations import GitHub
from gepa_service.secrets.master_key import VARIABLE as MASTER_KEY
from gepa_service.service import Service

DATABASE, JOURNALS = "GEPA_SERVICE_DATABASE", "GEPA_SERVICE_JOURNALS"
REQUIRED = (DATABASE, JOURNALS, MASTER_KEY)
PUBLIC_URL = "GEPA_SERVICE_PUBLIC_URL"
NETWORKS = "GEPA_SERVICE_ALLOW_NETWORKS"
OIDC = "GEPA_SERVICE_OIDC"
GITHUB_APP, GITHUB_KEY = "GEPA_SERVICE_GITHUB_APP_TOML", "GEPA_SERVICE_GITHUB_APP_KEY"
SETTINGS = (DATABASE, JOURNALS, PUBLIC_URL, NETWORKS, OIDC, GITHUB_APP, GITHUB_KEY)
MONGODB = ("mongodb://", "mongodb+srv://")


def read_settings(variables: Mapping[str, str], secret: str) -> dict[str, str]:
    """Return the settings that the variables hold. `secret`: what gives them to containers, for messages.

    Raises:
        ConfigurationError: one is missing, or names a file.
    """
    missing = [name for name in REQUIRED if not variables.get(name, "").strip()]
    if missing:
        raise ConfigurationError(f"{' and '.join(missing)} must be set: add it to {secret}")
    for name in (DATABASE, JOURNALS):
        if not variables[name].startswith(MONGODB):
            raise ConfigurationError(
                f"{name} names no MongoDB database, and containers share no SQLite file: set it in {secret} to a"
                " mongodb:// or mongodb+srv:// URL that is reached from there"
            )
    if bool(variables.get(GITHUB_APP, "").strip()) != bool(variables.get(GITHUB_KEY, "").strip()):
        raise ConfigurationError(f"{GITHUB_APP} and {GITHUB_KEY} belong together: set both in {secret}, or neither")
    return {name: variables.get(name, "").strip() for name in SETTINGS}


@contextlib.contextmanager
def opened_in_container(settings: Mapping[str, str], public_url: str | None) -> Iterator[Service]:
    """Open the parts of the service for the block; as `opened_service`.

    `public_url`: the address of the API that the platform gives, if its settings name none.

    Raises:
        ConfigurationError: neither names the API's address, by which jobs reach their journals.
    """
    address = settings[PUBLIC_URL] or public_url
    if address is None:
        raise ConfigurationError(f"the address of the API is not known: set {PUBLIC_URL} to it")
    with opened_service(
        settings[DATABASE],
        settings[JOURNALS],
        address,
        allow_networks=settings[NETWORKS].split(),
        github=partial(_github_app, settings) if settings[GITHUB_APP] else None,
        oidc=[line.strip() for line in settings[OIDC].splitlines() if line.strip()],
    ) as service:
        yield service


def _github_app(settings: Mapping[str, str], state_key: bytes) -> GitHub:
    try:
        described = tomllib.loads(settings[GITHUB_APP])
    except ValueError as error:
        raise ConfigurationError(f"{GITHUB_APP} is no TOML: {error}") from None
    return github_app(described, settings[GITHUB_KEY], state_key, GITHUB_APP)
