"""Open a tenant's secrets, for the processes of its work: variables, and headers that the gateway sets.

The one place that leaves out secrets whose names decide what programs of this machine do.
"""

from dataclasses import dataclass, field

from gepa_service.jobs.job_environment import may_be_secret
from gepa_service.model.tenant import Secret
from gepa_service.secrets.envelope import DataKey, key_of
from gepa_service.secrets.vault import Vault, open_with
from gepa_service.service import Revealed


def revealed(vault: Vault, tenant: str) -> Revealed:
    """Return the secrets of a tenant. Blocks.

    Raises:
        MasterKeyError, SecretDamaged: as `reveal`. RecordsUnavailable: they cannot be read.
    """
    found = reveal(vault, tenant)
    usable = {name: secret for name, secret in found.items() if may_be_secret(name)}
    headers = tuple(
        f"{header['host']} {header['header']}={header['prefix']}{name}"
        for name, secret in usable.items()
        for header in secret.headers
    )
    unused = tuple(secret.value for name, secret in found.items() if name not in usable)
    return Revealed({name: secret.value for name, secret in usable.items()}, headers, unused)


@dataclass(frozen=True)
class RevealedSecret:
    """A value, and the hosts that the gateway puts it on for: `host`, `header`, `prefix` of each."""

    value: str = field(repr=False)
    headers: tuple[dict[str, str], ...] = ()


def reveal(vault: Vault, tenant: str) -> dict[str, RevealedSecret]:
    """Return all secrets of a tenant by name.

    Raises:
        MasterKeyError: the master key is another. SecretDamaged: a secret was changed or moved.
    """
    keys: dict[str, DataKey] = {}
    revealed = {}
    for secret in vault.records.every(Secret, tenant):
        if key_of(secret.sealed) not in keys:  # at first, and if the tenant's key is replaced meanwhile
            keys = vault.keys(vault.tenant(tenant))
        revealed[secret.id] = RevealedSecret(open_with(keys, secret), secret.headers)
    return revealed
