"""Recorded names reach git neither as options nor as paths, and commits that git finds broken are refused."""

import base64
from pathlib import Path

import pytest

from evolverpc_common.git import GitError
from gepa_client.evolution.checkout import LocalCheckout
from tests.gepa_client.stored_code import StoredCode, git
from tests.gepa_client.stored_run import RUN_ID


@pytest.fixture
def code(tmp_path: Path) -> StoredCode:
    return StoredCode(tmp_path / "a folder: with a colon")


@pytest.mark.parametrize(
    "branch",
    [
        "--upload-pack=touch x",
        "evolve/../main",
        "evolve/a/b/c",
        "evolve/-r/0",
        "evolve/r/0.lock",
        "x\n",
        "evolve/r/1000000000",
    ],
)
def test_no_other_branch_is_made_or_switched_to(branch: str) -> None:
    repository = LocalCheckout(Path(__file__).parent)
    with pytest.raises(GitError, match="is not a branch of a run"):
        repository.make_branch(branch, "a" * 40, [])
    with pytest.raises(GitError, match="is not a branch of a run"):
        repository.switch(branch)


def test_a_bundle_with_other_commits_is_refused(code: StoredCode) -> None:
    other = base64.b64decode(code.applied(1)["bundle"])
    repository = LocalCheckout(code.user)
    with pytest.raises(GitError, match="git bundle"):
        repository.make_branch(code.branch(1), code.commits[1], [b"no bundle"])
    with pytest.raises(GitError, match="has no bundle that holds it"):
        repository.make_branch(code.branch(3), code.commits[3], [other])
    assert repository.branches(RUN_ID) == {}


def test_a_commit_that_git_finds_dangerous_is_refused(code: StoredCode) -> None:
    inner = git(code.server, "mktree", given=b"").strip()
    entry = f"040000 tree {inner}\t.GIT\n".encode()
    tree = git(code.server, "mktree", given=entry).strip()
    commit = git(code.server, "commit-tree", tree, "-p", code.seed, "-m", "hooks").strip()
    git(code.server, "update-ref", f"refs/heads/{code.branch(9)}", commit)
    git(code.server, "bundle", "create", "--quiet", "bundle", f"{code.seed}..{code.branch(9)}")
    bundle = (code.server / "bundle").read_bytes()
    repository = LocalCheckout(code.user)
    with pytest.raises(GitError, match="hasDotgit"):
        repository.make_branch(code.branch(9), commit, [bundle])
    assert repository.branches(RUN_ID) == {}
