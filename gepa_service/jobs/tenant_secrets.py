"""A tenant's secrets as its job process takes them: variables, and headers that the gateway sets."""

from gepa_service.jobs.attempt import Revealed
from gepa_service.jobs.job_environment import REFUSED_SECRETS
from gepa_service.secrets.reveal import reveal
from gepa_service.secrets.vault import Vault


def revealed(vault: Vault, tenant: str) -> Revealed:
    """Return the secrets of a tenant. Blocks.

    Raises:
        MasterKeyError, SecretDamaged: as `reveal`. RecordsUnavailable: they cannot be read.
    """
    found = reveal(vault, tenant)
    usable = {name: secret for name, secret in found.items() if REFUSED_SECRETS.fullmatch(name) is None}
    headers = tuple(
        f"{header['host']} {header['header']}={header['prefix']}{name}"
        for name, secret in usable.items()
        for header in secret.headers
    )
    return Revealed({name: secret.value for name, secret in usable.items()}, headers)
