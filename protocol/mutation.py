"""`apply_mutation`: one change to a candidate's code or texts, as a transaction."""

from typing import Annotated, Literal

from pydantic import Field

from protocol.base import Candidate, Items, RequestModel, ResultModel
from protocol.evaluation import Usage
from protocol.meta import Params


class ChangeRequest(RequestModel):
    """A change in natural language, for a coding agent; `location` says where to look first."""

    kind: Literal["change_request"]
    request: Annotated[str, Field(min_length=1)]
    location: str | None = None


class Patch(RequestModel):
    """A unified diff against the candidate's commit."""

    kind: Literal["patch"]
    diff: Annotated[str, Field(min_length=1)]


class Texts(RequestModel):
    """Component texts, written to where the program keeps them."""

    kind: Literal["texts"]
    texts: dict[str, str]


class Merge(RequestModel):
    """Join this candidate's code with another's."""

    kind: Literal["merge"]
    other: Candidate


Mutation = Annotated[ChangeRequest | Patch | Texts | Merge, Field(discriminator="kind")]


class ApplyMutationParams(Params):
    """Apply one mutation to a candidate; all of it or nothing."""

    candidate: Candidate
    mutation: Mutation


class ApplyMutationResult(ResultModel):
    """The new candidate, and what was done to make it."""

    candidate: Candidate
    commit: str
    parent: str
    diff: str
    files: Items[str]
    summary: str
    usage: Usage | None = None
    components_added: Items[str] = []
    components_removed: Items[str] = []
