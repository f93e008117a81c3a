"""Members of a tenant, who sign in by OIDC."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from gepa_service.api.access import Manager
from gepa_service.api.openapi import documented
from gepa_service.api.pages import Page, Paging, RequestBody
from gepa_service.api.problems import not_found
from gepa_service.api.routes.repositories import Id
from gepa_service.auth.oidc import LONGEST_SUBJECT
from gepa_service.auth.recognize import make_member
from gepa_service.model.tenant import Member, Role
from gepa_service.records import stored

router = APIRouter(tags=["members"])


class MemberRequest(RequestBody):
    """A person or a workload. `issuer`: the URL of the OIDC issuer, `subject`: the `sub` of its tokens."""

    issuer: Annotated[str, Field(max_length=2000, pattern=r"^https?://[^\s]+$")]
    subject: Annotated[str, Field(min_length=1, max_length=LONGEST_SUBJECT, pattern=r"^[^\x00]+$")]
    role: Role


class MemberView(BaseModel):
    """A member."""

    member_id: str
    issuer: str
    subject: str
    role: Role
    created_at: datetime

    @classmethod
    def of(cls, record: Member) -> "MemberView":
        """Return what is shown of a record."""
        issuer, _, subject = record.subject.partition(" ")
        return cls(member_id=record.id, issuer=issuer, subject=subject, role=record.role, created_at=record.created)


class MemberPage(Page[MemberView]):
    """Members, in the order of their ids."""


@router.post("/members", status_code=201)
def add_member(asked: MemberRequest, caller: Manager) -> MemberView:
    """Add a member; one that is there gets this role."""
    record = make_member(caller.tenant, asked.issuer, asked.subject, asked.role)
    return MemberView.of(
        stored(caller.records.store, record, lambda each: each.model_copy(update={"role": record.role}))
    )


@router.get("/members")
def members(caller: Manager, query: Paging) -> MemberPage:
    """List the members."""
    return MemberPage.read(MemberView.of, caller.records, Member, query)


@router.delete("/members/{member_id}", status_code=204, responses=documented(404))
def delete_member(member_id: Id, caller: Manager) -> None:
    """Remove a member, whose tokens are refused at once."""
    if not caller.records.remove(Member, member_id):
        raise not_found("member")
