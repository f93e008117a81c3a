"""The caller of a request, as its key or token proves it, and what its role permits."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from gepa_service.model.tenant import Role


class Permission(StrEnum):
    """What a route requires of its caller."""

    READ = "read"
    WRITE = "write"
    MANAGE = "manage"
    """Keys, members, secrets, webhooks, quotas."""
    JOURNAL = "journal"
    """The journal of one job: the optimizer of that job alone."""
    ATTEMPT = "attempt"
    """The order and secrets of one work, and reports about it: the attempt at that work alone."""


TokenRole = Literal["job", "attempt"]
"""The roles of tokens of processes: of the optimizer of a job, and of an attempt at any work."""

PERMISSIONS: dict[Role | TokenRole, frozenset[Permission]] = {
    "owner": frozenset({Permission.READ, Permission.WRITE, Permission.MANAGE}),
    "editor": frozenset({Permission.READ, Permission.WRITE}),
    "viewer": frozenset({Permission.READ}),
    "job": frozenset({Permission.JOURNAL}),
    "attempt": frozenset({Permission.ATTEMPT}),
}


@dataclass(frozen=True)
class Principal:
    """Who calls. `actor`: for the audit log: `key:ID`, `oidc:SUBJECT`, `job:ID` or `attempt:ID`.

    `job_id`, `attempt`: of the token of a process alone: its work, and the number of its attempt.
    """

    tenant: str
    role: Role | TokenRole
    actor: str
    job_id: str | None = None
    attempt: int = 0

    @property
    def is_process(self) -> bool:
        """Whether it is no person and no key, but a process of one work."""
        return self.role in ("job", "attempt")

    def may(self, permission: Permission) -> bool:
        """Return whether the role permits it."""
        return permission in PERMISSIONS[self.role]
