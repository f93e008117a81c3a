"""What all sandboxes of one runtime share."""

import secrets
from dataclasses import dataclass

from sandbox_runtime.backends.bubblewrap.door import Door
from sandbox_runtime.backends.bubblewrap.groups import Groups
from sandbox_runtime.backends.records import Records

BUILDER = 0x7000_0000
"""The user that builds environments, where sandboxes have users of their own."""

_USERS = range(BUILDER + 1, 0x7FFF_FFFF)


@dataclass(frozen=True)
class Machine:
    """`bubblewrap`: its path. `rooted`: this is root, so each gets a user of its own. `warm`: servers are forked."""

    bubblewrap: str
    door: Door
    records: Records
    groups: Groups
    rooted: bool
    warm: bool

    def new_user(self) -> int | None:
        """One that nobody else has; None where sandboxes run as this process's own."""
        return secrets.choice(_USERS) if self.rooted else None

    @property
    def builder(self) -> int | None:
        """The same for builds, always the same, as one goes on with what another left."""
        return BUILDER if self.rooted else None
