"""Translate between candidates whose code is a component and the program of one commit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol import Candidate, ComponentInfo, ProgramInfo
from protocol.code import (
    ADDED_COMPONENTS,
    CODE_COMPONENTS,
    GIT_BRANCH,
    added_components,
    added_to,
    commit_of,
    git_branch,
)
from protocol.errors import ProgramFailed, UnknownCandidate

_DESCRIPTIONS = {
    GIT_BRANCH: ("code", "The program's code: branch@commit in its git repository."),
    ADDED_COMPONENTS: ("added", "Texts that changes of the code added: a JSON object."),
}


@dataclass(frozen=True)
class ChangedCandidate:
    """A candidate after a change of its code, with the names of the components that came and went."""

    candidate: Candidate
    added: list[str]
    removed: list[str]


def with_code_components(info: ProgramInfo, branch: str, commit: str) -> ProgramInfo:
    """The seed's program as the contract tells of it: its own components, and those that say which code runs."""
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
    """The full id of the commit that a candidate names.

    Raises:
        UnknownCandidate: it names none, or what it says is no `branch@<full commit id>`.
    """
    try:
        commit = commit_of(candidate)
    except ValueError as error:
        raise UnknownCandidate(str(error)) from None
    if commit is None:
        raise UnknownCandidate(f"it has no {GIT_BRANCH}", missing=[GIT_BRANCH])
    return commit


def program_candidate(seed: Candidate, candidate: Candidate) -> Candidate:
    """What a commit's program gets, `seed` being the texts it starts from itself; what it does not know is left out."""
    added = added_to(candidate)
    return {name: candidate.get(name, added.get(name, text)) for name, text in seed.items()}


def changed_candidate(
    candidate: Candidate, before: Candidate, now: Candidate, branch: str, commit: str
) -> ChangedCandidate:
    """The candidate whose code has gone from a commit with the texts `before` to `commit` with the texts `now`.

    A text that the commit itself changed is the new one; a name that was unknown so far comes with the commit's text.
    One that the commit knows again, and `before` did not, counts as added, with the text it had.
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


def requested_from_program(components: Iterable[str], candidate: Candidate, seed: Mapping[str, str]) -> list[str]:
    """The program's own components that records are wanted for; all of them where they are wanted for the code."""
    wanted: list[str] = []
    for name in components:
        if name == GIT_BRANCH:
            wanted += seed
        elif name == ADDED_COMPONENTS:
            wanted += added_to(candidate)
        else:
            wanted.append(name)
    return [name for name in dict.fromkeys(wanted) if name in seed]


def dataset_of(answer: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The dataset in a program's answer, records by component. Raises `ProgramFailed` where it is none."""
    dataset = answer.get("dataset")
    if not isinstance(dataset, dict):
        raise _malformed("dataset")
    for name, records in dataset.items():
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise _malformed(f"dataset.{name}")
    return dataset


def by_requested_component(dataset: Mapping[str, Any], asked: Iterable[str], candidate: Candidate) -> dict[str, Any]:
    """Records under the names that were asked for: those for the code are everything that was recorded, once."""
    found: dict[str, Any] = {}
    for name in asked:
        if name == GIT_BRANCH:
            found[name] = _merged_records(dataset)
        elif name == ADDED_COMPONENTS:
            found[name] = _merged_records({part: dataset[part] for part in added_to(candidate) if part in dataset})
        elif name in dataset:
            found[name] = dataset[name]
    return found


def _merged_records(dataset: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The records of all components in one list; each says its component, unless all have the same records."""
    each = list(dataset.values())
    if all(records == each[0] for records in each):
        return list(each[0]) if each else []
    return [{"Component": name, **record} for name, records in dataset.items() for record in records]


def _malformed(where: str) -> ProgramFailed:
    expected = "an object" if where == "dataset" else "a list of objects"
    message = f"the program's answer to make_reflective_dataset: {where} is not {expected}"
    return ProgramFailed(message, stage="make_reflective_dataset", log_tail="")
