"""Which master key the database was written with, so that a wrong one is noticed before it encrypts anything."""

from typing import ClassVar

from gepa_service.records.record import Record


class MasterKeyName(Record):
    """The name of the present master key, from which nothing of the key follows. It belongs to `TENANTS`."""

    kind: ClassVar[str] = "master_key"

    name: str
