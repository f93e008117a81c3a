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


PERMISSIONS: dict[Role | Literal["job"], frozenset[Permission]] = {
    "owner": frozenset({Permission.READ, Permission.WRITE, Permission.MANAGE}),
    "editor": frozenset({Permission.READ, Permission.WRITE}),
    "viewer": frozenset({Permission.READ}),
    "job": frozenset({Permission.JOURNAL}),
}


@dataclass(frozen=True)
class Principal:
    """Who calls. `actor`: for the audit log: `key:ID`, `oidc:SUBJECT` or `job:ID`. `job_id`: of a job token alone."""

    tenant: str
    role: Role | Literal["job"]
    actor: str
    job_id: str | None = None

    def may(self, permission: Permission) -> bool:
        """Return whether the role permits it."""
        return permission in PERMISSIONS[self.role]
