"""Translate between candidates whose code is a component and the program of one commit."""

from collections.abc import Iterable, Mapping

from protocol import Candidate, ComponentInfo, ProgramInfo
from protocol.code import (
    ADDED_COMPONENTS,
    CODE_COMPONENTS,
    GIT_BRANCH,
    added_to,
    commit_of,
    git_branch,
)
from protocol.errors import ProgramFailed

_DESCRIPTIONS = {
    GIT_BRANCH: ("code", "The program's code: branch@commit in its git repository."),
    ADDED_COMPONENTS: ("added", "Texts that changes of the code added: a JSON object."),
}


def with_code_components(info: ProgramInfo, branch: str, commit: str) -> ProgramInfo:
    """Return the seed's program info with the two components that name the code."""
    label = branch.encode("utf-8", "replace").decode().replace("@", "-")  # git allows more in a name than the contract
    texts = {GIT_BRANCH: git_branch(label, commit), ADDED_COMPONENTS: "{}"}
    code = [ComponentInfo(name=name, kind=kind, description=about) for name, (kind, about) in _DESCRIPTIONS.items()]
    return info.model_copy(
        update={"components": [*info.components, *code], "seed_candidate": {**info.seed_candidate, **texts}}
    )


def check_names(seed: Candidate) -> None:
    """Refuse a program that has a component of its own by one of the two names. Raises `ProgramFailed`."""
    clash = [name for name in CODE_COMPONENTS if name in seed]
    if clash:
        raise ProgramFailed(
            f"the program has a component {clash[0]!r} of its own, which has a meaning where code evolves",
            stage="seed_candidate",
            log_tail="",
        )


def named_commit(candidate: Candidate) -> str:
    """Return the full id of the commit that a candidate names, which the service has checked."""
    commit = commit_of(candidate)
    assert commit is not None, "a candidate has the components of the seed"  # noqa: S101
    return commit


def program_candidate(seed: Candidate, candidate: Candidate) -> Candidate:
    """Return the texts that a commit's program gets: `seed` with the candidate's own where it has them."""
    added = added_to(candidate)
    return {name: candidate.get(name, added.get(name, text)) for name, text in seed.items()}


def requested_from_program(components: Iterable[str], candidate: Candidate, seed: Mapping[str, str]) -> list[str]:
    """Return the program's own components to make records for; all of them if the code is requested."""
    wanted: list[str] = []
    for name in components:
        if name == GIT_BRANCH:
            wanted += seed
        elif name == ADDED_COMPONENTS:
            wanted += added_to(candidate)
        else:
            wanted.append(name)
    return [name for name in dict.fromkeys(wanted) if name in seed]
