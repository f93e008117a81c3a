"""Reflective datasets where code evolves: asked of a program by its own components, answered by the candidate's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol import Candidate
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_to
from protocol.errors import ProgramFailed


def asked_of_program(components: Iterable[str], candidate: Candidate, seed: Mapping[str, str]) -> list[str]:
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


def recorded(answer: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The dataset in a program's answer, records by component. Raises `ProgramFailed` where it is none."""
    dataset = answer.get("dataset")
    if not isinstance(dataset, dict):
        raise _malformed("dataset")
    for name, records in dataset.items():
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise _malformed(f"dataset.{name}")
    return dataset


def as_asked(dataset: Mapping[str, Any], asked: Iterable[str], candidate: Candidate) -> dict[str, Any]:
    """Records under the names that were asked for: those for the code are everything that was recorded, once."""
    found: dict[str, Any] = {}
    for name in asked:
        if name == GIT_BRANCH:
            found[name] = _joined(dataset)
        elif name == ADDED_COMPONENTS:
            found[name] = _joined({part: dataset[part] for part in added_to(candidate) if part in dataset})
        elif name in dataset:
            found[name] = dataset[name]
    return found


def _joined(dataset: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The records of all components in one list; each says its component, unless all have the same records."""
    each = list(dataset.values())
    if all(records == each[0] for records in each):
        return list(each[0]) if each else []
    return [{"Component": name, **record} for name, records in dataset.items() for record in records]


def _malformed(where: str) -> ProgramFailed:
    expected = "an object" if where == "dataset" else "a list of objects"
    said = f"the program's answer to make_reflective_dataset: {where} is not {expected}"
    return ProgramFailed(said, stage="make_reflective_dataset", log_tail="")
