"""Decrypt a tenant's secrets, for a process that runs one of its jobs; the API never imports this."""

from dataclasses import dataclass, field

from gepa_service.model.tenant import Secret
from gepa_service.secrets.envelope import DataKey, key_of
from gepa_service.secrets.vault import Vault, open_with


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
