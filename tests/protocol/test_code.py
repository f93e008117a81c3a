"""The components of a candidate whose code evolves: what is written is read again, and bad texts are named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.code import (
    ADDED_COMPONENTS,
    GIT_BRANCH,
    added_components,
    added_to,
    branch_of,
    code_at,
    commit_of,
    git_branch,
)

SHA = "0f5c2c1d9a3b4e6f708192a3b4c5d6e7f8091a2b"
branches = st.from_regex(r"[A-Za-z0-9/_.-]{1,40}", fullmatch=True)
commits = st.from_regex(r"[0-9a-f]{40}|[0-9a-f]{64}", fullmatch=True)


@given(branch=branches, commit=commits)
def test_a_branch_and_a_commit_are_read_as_they_were_written(branch: str, commit: str) -> None:
    candidate = {GIT_BRANCH: git_branch(branch, commit)}
    assert (branch_of(candidate), commit_of(candidate)) == code_at(candidate) == (branch, commit)


@given(added=st.dictionaries(st.text(), st.text()))
def test_added_texts_are_read_as_they_were_written_and_in_their_order(added: dict[str, str]) -> None:
    read = added_to({ADDED_COMPONENTS: added_components(added)})
    assert list(read.items()) == list(added.items())


def test_a_candidate_whose_code_does_not_evolve_has_no_commit_and_nothing_added() -> None:
    candidate = {"rules": "one line a label"}
    assert (branch_of(candidate), commit_of(candidate), added_to(candidate)) == (None, None, {})


@pytest.mark.parametrize(
    "text", ["", f"@{SHA}", f"main@{SHA[:39]}", f"main@{SHA}\n", f"my branch@{SHA}", f"main@{SHA[:-1]}\u0660"]
)
def test_a_text_that_names_no_commit_is_refused_by_the_components_name(text: str) -> None:
    for read in (commit_of, branch_of):
        with pytest.raises(ValueError, match=r"^git_branch is .*branch@<full commit id>"):
            read({GIT_BRANCH: text})
    assert code_at({GIT_BRANCH: text}) == (None, None)


@pytest.mark.parametrize(
    "text",
    ["", '{"tone": 1}', '{"tone": NaN}', '{"tone": %s}' % ("1" * 5000), "[" * 100_000, json.dumps([["tone", "warm"]])],
    ids=lambda text: str(text)[:20],
)
def test_a_text_that_holds_no_texts_is_refused_by_the_components_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"^added_components is not "):
        added_to({ADDED_COMPONENTS: text})
