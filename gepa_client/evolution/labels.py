"""How a candidate with code is told to people: its branch and commit by name, its texts apart from them."""

from protocol import Candidate
from protocol.code import ADDED_COMPONENTS, CODE_COMPONENTS, GIT_BRANCH, added_to, code_at

SHOWN = 7
"""Characters of a commit's id that are shown."""

LONGEST = 80


def code_of(candidate: Candidate) -> str | None:
    """`evolve/r/3@1a2b3c4`; None where the candidate's code does not evolve. What is malformed is told as it is."""
    branch, commit = code_at(candidate)
    if branch is not None and commit is not None:
        return named(branch, commit)
    return candidate[GIT_BRANCH][:LONGEST] if GIT_BRANCH in candidate else None


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
