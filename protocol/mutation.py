"""`apply_mutation`: one change to a candidate's code or texts, as a transaction; and what to know before asking."""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from protocol.base import WHOLE, Candidate, Items, JsonValue, Params, RequestModel, ResultModel
from protocol.evaluation import Usage


class PastMutation(RequestModel):
    """A change asked for earlier on the same line of candidates, and its outcome.

    `rejected`: nothing was changed, for `reason` at `stage`. `not_better`: it was evaluated and dropped. `accepted`: it
    is part of the line. Scores are means over the rows both were evaluated on; null where it never came to that.
    """

    request: str
    outcome: Literal["accepted", "not_better", "rejected"]
    stage: str | None = None
    reason: str | None = None
    score: FiniteFloat | None = None
    parent_score: FiniteFloat | None = None


class ChangeRequest(RequestModel):
    """A change in natural language, for a coding agent; `location`: where to look first.

    `records`: what the program did on examples, as reflection saw it. `history`: what was tried before, oldest first.
    """

    kind: Literal["change_request"]
    request: Annotated[str, Field(min_length=1)]
    location: str | None = None
    records: Items[dict[str, JsonValue]] = []
    history: Items[PastMutation] = []


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


class MutationName(RequestModel):
    """Names one mutation of one run: its branch is `evolve/<run>/<number>`, and asking again finds what it made."""

    run: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")]
    number: Annotated[int, Field(ge=0, le=999_999_999), WHOLE]


class ApplyMutationParams(Params):
    """Apply one mutation to a candidate; all of it or nothing. Without a `name` the server gives it one of its own."""

    candidate: Candidate
    mutation: Mutation
    name: MutationName | None = None


class ApplyMutationResult(ResultModel):
    """The new candidate, and what was done to make it.

    `branch`: where the commit can be found. `diff`: unified, from `parent` to `commit`. `bundle`: base64 of a git
    bundle with what `commit` has and its parents have not, for `import_commits` of another server.
    """

    candidate: Candidate
    commit: str
    parent: str
    diff: str
    files: Items[str]
    summary: str
    branch: str | None = None
    bundle: str | None = None
    usage: Usage | None = None
    components_added: Items[str] = []
    components_removed: Items[str] = []


class OutlineCodeParams(Params):
    """Describe the code of a candidate to a reflection model that is about to request a change of it."""

    candidate: Candidate


class OutlineCodeResult(ResultModel):
    """`outline`: text for a model: the files, what they define, and the program's own notes; bounded."""

    outline: str


class ImportCommitsParams(Params):
    """Take over commits made by another server. `bundles`: base64 of git bundles, parents before children."""

    bundles: Annotated[Items[str], Field(min_length=1)]


class ImportCommitsResult(ResultModel):
    """`commits`: the full ids of the commits that can be evaluated here now, one per bundle."""

    commits: Items[str]
