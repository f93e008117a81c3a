"""Names for display and for branches: of a candidate's code, its texts, a run, a manual change."""

import secrets

from protocol import Candidate
from protocol.code import ADDED_COMPONENTS, CODE_COMPONENTS, GIT_BRANCH, added_to, code_at

SHOWN = 7
"""Characters of a commit's id that are shown."""

SHOWN_MALFORMED = 80
"""Characters of a malformed value that are shown."""

BY_HAND = "by-hand"
"""Stands for all changes that `evolverpc mutate` made, if a command about branches takes a run."""


def candidate_name(index: int) -> str:
    """`candidate 3`, or `the seed`."""
    return f"candidate {index}" if index else "the seed"


def code_label(candidate: Candidate) -> str | None:
    """Return `evolve/r/3@1a2b3c4`; None if the candidate's code does not evolve; a malformed value unchanged."""
    branch, commit = code_at(candidate)
    if branch is not None and commit is not None:
        return short_commit_name(branch, commit)
    return candidate[GIT_BRANCH][:SHOWN_MALFORMED] if GIT_BRANCH in candidate else None


def short_commit_name(branch: str, commit: str) -> str:
    """`evolve/r/3@1a2b3c4`."""
    return f"{branch}@{commit[:SHOWN]}"


def component_texts(candidate: Candidate) -> dict[str, str]:
    """Its texts by component, those that code mutations added among them; without what names its code."""
    own = {name: text for name, text in candidate.items() if name not in CODE_COMPONENTS}
    try:
        return {**own, **{name: text for name, text in added_to(candidate).items() if name not in own}}
    except ValueError:
        return {**own, ADDED_COMPONENTS: candidate[ADDED_COMPONENTS]}


def manual_run_name() -> str:
    """Return what stands for the run in the branch of one manual change: `by-hand-1f3a5c7e`."""
    return f"{BY_HAND}-{secrets.token_hex(4)}"
