"""The secrets of tenants: written, listed and given new keys here, opened by `jobs.tenant_secrets` alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from gepa_service.model.tenant import TENANTS, MasterKeyName, Secret, Tenant
from gepa_service.records import RecordChanged, RecordStore, changed, stored
from gepa_service.secrets.envelope import DataKey, key_of, master_of, new_data_key, open_sealed, seal, unwrap, wrap
from gepa_service.secrets.master_key import MasterKey, MasterKeyError

PRESENT = "present"


@dataclass(frozen=True)
class Vault:
    """Secrets in these records. `masters`: the first encrypts, all decrypt.

    A tenant's record lists its data keys, the present one first: a secret that an older one encrypted can be read until
    it is encrypted again. A change of keys that is cut off leaves every secret readable, and can be repeated.
    """

    records: RecordStore
    masters: Sequence[MasterKey]

    def verify(self) -> None:
        """Check that the database was written with one of the master keys; note the first one in an empty database.

        Raises:
            MasterKeyError: it was written with another. RecordsUnavailable: it cannot be read.
        """
        found = self.records.get(MasterKeyName, TENANTS, PRESENT)
        if found is None:
            made = MasterKeyName(tenant=TENANTS, id=PRESENT, name=self.masters[0].name)
            found = stored(self.records, made, lambda each: each)
        if found.name not in {each.name for each in self.masters}:
            known = ", ".join(each.name for each in self.masters)
            raise MasterKeyError(
                f"the database was written with the master key {found.name}, this service has {known}; "
                f"start it with the key {found.name}. Nothing was changed"
            )

    def put(self, tenant: str, name: str, value: str, headers: Sequence[dict[str, str]] = ()) -> None:
        """Write a secret, over one that is there.

        Raises:
            LookupError: there is no such tenant. MasterKeyError, SecretDamaged: its key cannot be decrypted.
        """
        while True:
            key = self._present_key(tenant)
            made = Secret(tenant=tenant, id=name, sealed=seal(value, tenant, name, key), headers=tuple(headers))
            stored(self.records, made, partial(_over, made))
            # Keys that are replaced twice meanwhile would leave a secret without its key.
            if key.name in {each.split(".")[0] for each in _wrapped(self.tenant(tenant))}:
                return

    def delete(self, tenant: str, name: str) -> bool:
        """Delete a secret; return whether there was one."""
        return self.records.remove(Secret, tenant, id_=name) > 0

    def rotate_tenant_key(self, tenant: str) -> int:
        """Encrypt a tenant's secrets by a new data key; return how many there were.

        The key before stays listed until the next change, for a secret that is written at the same time.

        Raises:
            LookupError: there is no such tenant. MasterKeyError, SecretDamaged: a key or a secret cannot be decrypted.
        """
        used = {key_of(secret.sealed) for secret in self.records.every(Secret, tenant)}
        key = new_data_key()

        def with_key(found: Tenant) -> Tenant:
            older = _wrapped(found)
            kept = [each for i, each in enumerate(older) if i == 0 or each.split(".")[0] in used]
            listed = [wrap(unwrap(each, tenant, self.masters), tenant, self.masters[0]) for each in kept]
            return found.model_copy(update={"wrapped_key": " ".join([wrap(key, tenant, self.masters[0]), *listed])})

        self.verify()
        keys = self.keys(changed(self.records, self.tenant(tenant), with_key))

        def again(found: Secret) -> Secret:
            if key_of(found.sealed) == key.name:
                return found
            value = open_with(keys, found)
            return found.model_copy(update={"sealed": seal(value, tenant, found.id, key)})

        count = 0
        for secret in self.records.every(Secret, tenant):
            try:
                changed(self.records, secret, again)
            except RecordChanged:
                if self.records.get(Secret, tenant, secret.id) is not None:
                    raise
                continue  # deleted meanwhile
            count += 1
        return count

    def rotate_master_key(self) -> int:
        """Encrypt the data keys of all tenants by the first master key; return of how many tenants.

        All processes of the service must have been started with both keys before.

        Raises:
            MasterKeyError: a data key was encrypted by a master key that is not listed; others are done.
        """
        self.verify()
        first, count = self.masters[0], 0
        problem: MasterKeyError | None = None

        def again(found: Tenant) -> Tenant:
            older = _wrapped(found)
            if all(master_of(each) == first.name for each in older):
                return found
            listed = [wrap(unwrap(each, found.id, self.masters), found.id, first) for each in older]
            return found.model_copy(update={"wrapped_key": " ".join(listed)})

        for tenant in self.records.every(Tenant, TENANTS):
            try:
                count += changed(self.records, tenant, again) is not tenant
            except MasterKeyError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        noted = self.records.get(MasterKeyName, TENANTS, PRESENT)
        if noted is not None and noted.name != first.name:
            changed(self.records, noted, lambda found: found.model_copy(update={"name": first.name}))
        return count

    def keys(self, tenant: Tenant) -> dict[str, DataKey]:
        """Return a tenant's data keys by name. Raises `MasterKeyError` or `SecretDamaged`."""
        found = [unwrap(each, tenant.id, self.masters) for each in _wrapped(tenant)]
        return {key.name: key for key in found}

    def tenant(self, tenant: str) -> Tenant:
        """Return the record of a tenant. Raises `LookupError` if there is none."""
        found = self.records.get(Tenant, TENANTS, tenant)
        if found is None:
            raise LookupError(f"there is no tenant {tenant}")
        return found

    def _present_key(self, tenant: str) -> DataKey:
        found = self.tenant(tenant)
        if found.wrapped_key is None:
            self.verify()
            wrapped = wrap(new_data_key(), tenant, self.masters[0])
            found = changed(
                self.records,
                found,
                lambda each: each.model_copy(update={"wrapped_key": wrapped}) if each.wrapped_key is None else each,
            )
        return unwrap(_wrapped(found)[0], tenant, self.masters)


def open_with(keys: dict[str, DataKey], secret: Secret) -> str:
    """Return the value of a secret. Raises `MasterKeyError` if none of the keys encrypted it, or `SecretDamaged`."""
    key = keys.get(key_of(secret.sealed))
    if key is None:
        raise MasterKeyError(f"the key that encrypted the secret {secret.id} of tenant {secret.tenant} is gone")
    return open_sealed(secret.sealed, secret.tenant, secret.id, key)


def _wrapped(tenant: Tenant) -> list[str]:
    return (tenant.wrapped_key or "").split()


def _over(made: Secret, found: Secret) -> Secret:
    return found.model_copy(update={"sealed": made.sealed, "headers": made.headers})
