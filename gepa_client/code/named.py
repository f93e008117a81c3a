"""How a candidate with code is told to people: its branch and commit by name, its texts apart from them."""

from protocol import Candidate
from protocol.code import ADDED_COMPONENTS, CODE_COMPONENTS, GIT_BRANCH, added_to, branch_of, commit_of

SHOWN = 7
"""Characters of a commit's id that are shown."""

LONGEST = 80


def code_of(candidate: Candidate) -> str | None:
    """`evolve/r/3@1a2b3c4`; None where the candidate's code does not evolve. What is malformed is told as it is."""
    try:
        branch, commit = branch_of(candidate), commit_of(candidate)
    except ValueError:
        return candidate[GIT_BRANCH][:LONGEST]
    return named(branch, commit) if branch is not None and commit is not None else None


def named(branch: str, commit: str) -> str:
    """`evolve/r/3@1a2b3c4`."""
    return f"{branch}@{commit[:SHOWN]}"


def texts_of(candidate: Candidate) -> dict[str, str]:
    """Its texts by component, those that code mutations added among them; without what names its code."""
    own = {name: text for name, text in candidate.items() if name not in CODE_COMPONENTS}
    try:
        return {**own, **{name: text for name, text in added_to(candidate).items() if name not in own}}
    except ValueError:
        return {**own, ADDED_COMPONENTS: candidate[ADDED_COMPONENTS]}
