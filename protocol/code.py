"""A candidate whose code evolves: which commit it is, and what its commits added to the program's components."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol.base import Candidate

GIT_BRANCH = "git_branch"
"""The component that names the code to run: `branch@<full commit id>`. The branch is a label; the commit counts."""

ADDED_COMPONENTS = "added_components"
"""The component that holds what code mutations added: a JSON object of texts, `{}` in the seed (GEPA keeps keys)."""

CODE_COMPONENTS = (GIT_BRANCH, ADDED_COMPONENTS)

_GIT_BRANCH = re.compile(r"(?P<branch>[^@\s]+)@(?P<commit>[0-9a-f]{40}|[0-9a-f]{64})")


def commit_of(candidate: Candidate) -> str | None:
    """Return the full id of the commit its code is at; None where its code does not evolve.

    Raises:
        ValueError: `git_branch` is not of the form `branch@<full commit id>`.
    """
    return _part("commit", candidate)


def branch_of(candidate: Candidate) -> str | None:
    """Return the branch in its `git_branch`, None if its code does not evolve; `ValueError` as `commit_of`."""
    return _part("branch", candidate)


def code_at(candidate: Candidate) -> tuple[str | None, str | None]:
    """Return branch and commit of its code, to display; None and None if `git_branch` is missing or malformed."""
    found = _GIT_BRANCH.fullmatch(candidate.get(GIT_BRANCH, ""))
    return (found["branch"], found["commit"]) if found is not None else (None, None)


def git_branch(branch: str, commit: str) -> str:
    """Return the text of the component: `branch@commit`."""
    return f"{branch}@{commit}"


def added_to(candidate: Candidate) -> dict[str, str]:
    """Return the texts that code mutations added, by component name; empty where none did.

    Raises:
        ValueError: `added_components` is not a JSON object of texts.
    """
    text = candidate.get(ADDED_COMPONENTS, "{}")
    try:
        added = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, 100,000 brackets
        raise ValueError(f"{ADDED_COMPONENTS} is not JSON: {error}") from None
    if not isinstance(added, dict) or not all(isinstance(value, str) for value in added.values()):
        raise ValueError(f"{ADDED_COMPONENTS} is not a JSON object of texts")
    return added


def added_components(added: dict[str, str]) -> str:
    """Return the text of the component that holds these."""
    return json.dumps(added, ensure_ascii=False, indent=2)


def by_requested_component(dataset: Mapping[str, Any], asked: Iterable[str], candidate: Candidate) -> dict[str, Any]:
    """Return records under the requested names; the code's are all records, each once."""
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
    """Return the records of all components in one list, labelled unless all components have the same."""
    each = list(dataset.values())
    if all(records == each[0] for records in each):
        return list(each[0]) if each else []
    return [{"Component": name, **record} for name, records in dataset.items() for record in records]


def _part(name: str, candidate: Candidate) -> str | None:
    text = candidate.get(GIT_BRANCH)
    if text is None:
        return None
    found = _GIT_BRANCH.fullmatch(text)
    if found is None:
        raise ValueError(f"{GIT_BRANCH} is {text!r:.80}, not branch@<full commit id>")
    return found[name]
