"""Whether two endpoints serve the same thing, so that a score from one means the same as a score from the other."""

from collections.abc import Callable, Iterable

from protocol import Candidate, DiscoverResult
from protocol.code import CODE_COMPONENTS, GIT_BRANCH, code_at

Wanted = Callable[[DiscoverResult], list[str]]
"""The names of the splits that a run uses, of those a server describes."""


def differences(
    leader: DiscoverResult, other: DiscoverResult, splits: Iterable[str], *, allow_mixed_programs: bool = False
) -> list[str]:
    """What `other` has otherwise than `leader`, one phrase each; empty where they agree.

    Compared are the programs' names (unless `allow_mixed_programs`), the components' names, the commit that the code
    starts from (on any branch), the digests of `splits`, the program's version where both declare one, and whether
    batches must stay whole.
    """
    found = []
    names = (leader.program.name, other.program.name)
    if names[0] != names[1] and not allow_mixed_programs:
        found.append(f"program: {names[1]} instead of {names[0]} (--allow-mixed-programs accepts other names)")
    ours, theirs = ({part.name for part in each.program.components} for each in (leader, other))
    if ours != theirs:
        without_trees = {GIT_BRANCH} <= ours - theirs <= set(CODE_COMPONENTS)
        hint = " (start it with --trees)" if without_trees else ""
        found.append(f"components: {_names(theirs)} instead of {_names(ours)}{hint}")
    else:
        commits = [_commit(each.program.seed_candidate) for each in (leader, other)]
        if commits[0] != commits[1]:
            found.append(f"git_branch: commit {commits[1]} instead of {commits[0]}")
    for split in splits:
        known = leader.datasets.get(split)
        here = other.datasets.get(split)
        if known is not None and here is None:
            found.append(f"split {split}: it has none")
        elif known is not None and here is not None and known.digest != here.digest:
            found.append(f"split {split}: other rows (digest {here.digest} instead of {known.digest})")
    versions = (leader.program.version, other.program.version)
    if None not in versions and versions[0] != versions[1]:
        found.append(f"program version: {versions[1]} instead of {versions[0]}")
    if leader.limits.whole_batches != other.limits.whole_batches:
        wants = ("takes single examples", "wants whole batches")
        found.append(
            f"batches: it {wants[other.limits.whole_batches]}, the leader {wants[leader.limits.whole_batches]}"
        )
    return found


def is_doubtful(leader: DiscoverResult, other: DiscoverResult) -> bool:
    """Whether the programs' digests differ: their code may, or only a setting that each machine has for itself.

    Digests made by servers of another name or language are made otherwise, and say nothing beside each other.
    """
    digests = (leader.program.digest, other.program.digest)
    kinds = [(each.server.name, each.server.language) for each in (leader, other)]
    return kinds[0] == kinds[1] and None not in digests and digests[0] != digests[1]


def _commit(candidate: Candidate) -> str | None:
    """The commit its code is at; where `git_branch` is no such thing, whatever it is."""
    return code_at(candidate)[1] or candidate.get(GIT_BRANCH)


def _names(components: set[str]) -> str:
    return ", ".join(sorted(components)) or "none"
