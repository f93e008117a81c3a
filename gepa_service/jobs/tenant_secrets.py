"""Open a tenant's secrets, for the processes of its work: variables, and headers that the gateway sets.

The one place that leaves out secrets whose names decide what programs of this machine do.
"""

from gepa_service.jobs.job_environment import may_be_secret
from gepa_service.model.tenant import Secret
from gepa_service.secrets.envelope import DataKey, key_of
from gepa_service.secrets.vault import Vault, open_with
from gepa_service.service import Revealed


def revealed(vault: Vault, tenant: str) -> Revealed:
    """Return the secrets of a tenant. Blocks.

    Raises:
        MasterKeyError: the master key is another. SecretDamaged: a secret was changed or moved.
        RecordsUnavailable: they cannot be read.
    """
    keys: dict[str, DataKey] = {}
    variables: dict[str, str] = {}
    headers: list[str] = []
    unused: list[str] = []
    for secret in vault.records.every(Secret, tenant):
        if key_of(secret.sealed) not in keys:  # at first, and if the tenant's key is replaced meanwhile
            keys = vault.keys(vault.tenant(tenant))
        value, name = open_with(keys, secret), secret.id
        if may_be_secret(name):
            variables[name] = value
            headers += [f"{each['host']} {each['header']}={each['prefix']}{name}" for each in secret.headers]
        else:
            unused.append(value)
    return Revealed(variables, tuple(headers), tuple(unused))
