"""A tenant's secrets as the processes of its work take them: variables, and headers that the gateway sets.

The one place that leaves out secrets whose names decide what programs of this machine do.
"""

from gepa_service.jobs.job_environment import may_be_secret
from gepa_service.jobs.parts import Revealed
from gepa_service.secrets.reveal import reveal
from gepa_service.secrets.vault import Vault


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
