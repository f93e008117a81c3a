"""Envelope encryption: a secret by the data key of its tenant, that key by the master key; both by AES-256-GCM.

The tenant and the name are associated data, so that a ciphertext that is moved to another place cannot be decrypted.
"""

import base64
import binascii
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gepa_service.secrets.master_key import KEY_BYTES, MasterKey, MasterKeyError

NONCE_BYTES = 12
NAME_BYTES = 6


class SecretDamaged(Exception):
    """What is stored is no secret of this place: it was changed or moved."""


@dataclass(frozen=True)
class DataKey:
    """A key of one tenant. `name`: random; it stands beside what the key encrypted."""

    name: str
    value: bytes = field(repr=False)


def new_data_key() -> DataKey:
    """Return a new random key."""
    return DataKey(os.urandom(NAME_BYTES).hex(), os.urandom(KEY_BYTES))


def wrap(key: DataKey, tenant: str, master: MasterKey) -> str:
    """Return the data key of a tenant, encrypted: `NAME.NAME OF THE MASTER KEY.CIPHERTEXT`."""
    return f"{key.name}.{master.name}.{_encrypted(master.value, key.value, 'data key', tenant, key.name)}"


def unwrap(wrapped: str, tenant: str, masters: Sequence[MasterKey]) -> DataKey:
    """Return the data key that was wrapped by one of the master keys.

    Raises:
        MasterKeyError: it was wrapped by another. SecretDamaged: it was changed, or is of another tenant.
    """
    name, by, data = _parts(wrapped, 3)
    master = next((each for each in masters if each.name == by), None)
    if master is None:
        known = ", ".join(each.name for each in masters)
        raise MasterKeyError(
            f"the secrets of tenant {tenant} are encrypted by the master key {by}, this service has {known}; "
            f"start it with the key {by}, or list that key too"
        )
    return DataKey(name, _decrypted(master.value, data, "data key", tenant, name))


def master_of(wrapped: str) -> str:
    """Return the name of the master key that wrapped a data key."""
    return _parts(wrapped, 3)[1]


def seal(value: str, tenant: str, name: str, key: DataKey) -> str:
    """Return the value of the secret `name` of a tenant, encrypted: `NAME OF THE KEY.CIPHERTEXT`."""
    return f"{key.name}.{_encrypted(key.value, value.encode(), 'secret', tenant, name)}"


def key_of(sealed: str) -> str:
    """Return the name of the data key that encrypted a secret."""
    return _parts(sealed, 2)[0]


def open_sealed(sealed: str, tenant: str, name: str, key: DataKey) -> str:
    """Return the value of the secret `name` of a tenant. Raises `SecretDamaged`."""
    return _decrypted(key.value, _parts(sealed, 2)[1], "secret", tenant, name).decode()


def _parts(text: str, count: int) -> list[str]:
    parts = text.split(".")
    if len(parts) != count:
        raise SecretDamaged("what is stored is no ciphertext")
    return parts


def _associated(*parts: str) -> bytes:
    """Return the parts with their lengths, so that no two places give the same."""
    return b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)


def _encrypted(key: bytes, value: bytes, *place: str) -> str:
    nonce = os.urandom(NONCE_BYTES)
    return base64.urlsafe_b64encode(nonce + AESGCM(key).encrypt(nonce, value, _associated(*place))).decode()


def _decrypted(key: bytes, text: str, *place: str) -> bytes:
    try:
        data = base64.b64decode(text, altchars=b"-_", validate=True)
        value: bytes = AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _associated(*place))
    except (InvalidTag, binascii.Error, ValueError) as error:
        raise SecretDamaged(f"what is stored for {' '.join(place)} was changed or moved") from error
    return value
