"""The candidate that a change of its code makes: which of its texts follow the new commit."""

from dataclasses import dataclass

from protocol import Candidate
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to, git_branch


@dataclass(frozen=True)
class ChangedCandidate:
    """A candidate after a change of its code, with the names of the components added and removed."""

    candidate: Candidate
    added: list[str]
    removed: list[str]


def changed_candidate(
    candidate: Candidate, before: Candidate, now: Candidate, branch: str, commit: str
) -> ChangedCandidate:
    """Return the candidate whose code moved from texts `before` to texts `now` at `commit`.

    A text that the commit changed is the new one; an unknown name gets the commit's text. A component that the commit
    has again, and `before` had not, counts as added and keeps its text.
    """
    added = added_to(candidate)
    new = {name: text for name, text in now.items() if name not in candidate and name not in added}
    changed = {name: text for name, text in now.items() if name in before and before[name] != text}
    texts = {name: changed.get(name, text) for name, text in candidate.items()}
    added = {name: changed.get(name, text) for name, text in added.items()} | new
    texts |= {GIT_BRANCH: git_branch(branch, commit)}
    if added != added_to(candidate):
        texts |= {ADDED_COMPONENTS: added_components(added)}
    return ChangedCandidate(texts, sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys()))
