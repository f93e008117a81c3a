"""The user's repository, wherever and however it lies: what is taken from it, given to it, and left alone."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from evolverpc_common.git import GitError
from rpc_server.worktrees.repository import BranchTaken, NoRepository, UserRepository
from tests.rpc_server.mutations.project import Project

BRANCH = "evolve/run/1"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, links=True)


def change(project: Project, text: str = "changed\n", branch: str = BRANCH, start: str = "HEAD") -> tuple[str, bytes]:
    """A commit made elsewhere on top of one of the project's, and its bundle."""
    elsewhere = project.folder.parent / "elsewhere"
    project.git("worktree", "add", "--quiet", "--detach", str(elsewhere), start)
    (elsewhere / "notes/one.txt").write_text(text)
    project.git("-C", str(elsewhere), "commit", "--quiet", "--all", "--message", "changed")
    commit = project.git("-C", str(elsewhere), "rev-parse", "HEAD")
    project.git("update-ref", f"refs/heads/{branch}", commit)
    file = project.folder.parent / "bundle"
    project.git("bundle", "create", "--quiet", str(file), branch, f"^{commit}^")
    project.git("update-ref", "-d", f"refs/heads/{branch}")
    project.git("worktree", "remove", str(elsewhere))
    return commit, file.read_bytes()


def copy(project: Project) -> Project:
    """The same repository on another machine, as far as branches lead."""
    other = Project(project.folder.parent / "other")
    shutil.rmtree(other.folder)
    project.git("clone", "--quiet", "--no-local", str(project.folder), str(other.folder))
    return other


def files_in(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): os.fspath(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_a_tree_has_the_commits_files_as_they_are_and_the_users_stay(project: Project, tmp_path: Path) -> None:
    before = project.digest()
    (project.folder / "app.py").write_text("not committed")
    (hook := project.folder / ".git/hooks/post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    touched = project.digest()
    repository = UserRepository(project.folder)
    repository.check_out(project.first, tmp_path / "tree")
    found = files_in(tmp_path / "tree")
    assert sorted(found) == sorted(repository.files(project.first))
    assert found["notes/link.txt"] == "one.txt"
    assert found["notes/dos.txt"] == b"one\r\ntwo\r\nthree\r\n"
    assert os.access(tmp_path / "tree/tools/run.sh", os.X_OK)
    assert repository.changed() == ["app.py"]
    assert not (tmp_path / "hooked").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside", "project", "tree"]
    assert project.digest() == touched != before


def test_filters_that_the_user_configured_do_not_run_on_files_of_a_commit(project: Project, tmp_path: Path) -> None:
    mark = f"touch {tmp_path}/ran; cat"
    for name in ("clean", "smudge"):
        project.git("config", f"filter.a=b.{name}", mark)
    project.git("config", "filter.a=b.required", "true")
    project.write({".gitattributes": "notes/one.txt filter=a=b\n*.big filter=lfs\n*.py filter=other\n", "x.big": ""})
    (tmp_path / "ran").unlink(missing_ok=True)
    repository = UserRepository(project.folder)
    repository.check_out(project.first, tmp_path / "tree")
    os.utime(project.folder / "notes/one.txt", (1, 1))  # or git takes the file as unchanged, and does not read it
    commit = project.commit("Attributes")
    (tmp_path / "ran").unlink()  # proof that git itself runs it
    repository.check_out(commit, tmp_path / "other")
    assert (tmp_path / "other/notes/one.txt").read_bytes() == (project.folder / "notes/one.txt").read_bytes()
    os.utime(project.folder / "notes/one.txt", (0, 0))
    assert repository.changed() == []
    assert repository.filters(commit) == ["notes/one.txt (a=b)", "x.big (lfs)"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_the_program_may_be_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    project = Project(tmp_path / name, {f"{name}/app.py": "x = 1\n"})
    repository = UserRepository(project.folder / name)
    assert repository.prefix == name
    repository.check_out(project.first, tmp_path / "tree")
    assert (tmp_path / "tree" / name / "app.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    ("made", "printed"),
    [
        ("mkdir folder", "git init, git add, git commit"),
        ("git init --quiet folder", "no commit yet"),
        ("git init --quiet --bare folder", "bare repository"),
    ],
)
def test_without_a_first_commit_the_error_names_the_next_step(tmp_path: Path, made: str, printed: str) -> None:
    subprocess.run(made.split(), cwd=tmp_path, check=True)
    with pytest.raises(NoRepository, match=printed):
        UserRepository(tmp_path / "folder").head()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_another_users_repository_is_refused_with_gits_advice(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    for path in (project.folder, project.folder / ".git"):
        os.chown(path, 65534, 65534)
    with pytest.raises(NoRepository, match=r"dubious ownership.*git config --global --add safe\.directory") as refused:
        UserRepository(project.folder)
    assert "git init" not in str(refused.value)


# Bundles.


def test_a_bundle_becomes_a_branch_here_and_nothing_else_changes(project: Project) -> None:
    commit, bundle = change(project)
    other = copy(project)
    before = other.digest()
    repository = UserRepository(other.folder)
    assert not repository.has(commit)
    assert repository.import_bundle(bundle) == commit
    assert (repository.branch(BRANCH), repository.answer(BRANCH)) == (commit, None)
    assert other.digest() == before
    assert other.git("fsck", "--strict") == ""


def another(project: Project) -> tuple[str, bytes]:
    """A commit whose bundle names the same branch as the one that is there, and its bundle."""
    project.git("branch", "--quiet", "--move", BRANCH, "aside")
    made = change(project, "otherwise\n")
    project.git("branch", "--quiet", "--move", "aside", BRANCH)
    return made


def test_a_commit_is_taken_though_its_branch_is_at_another_one(project: Project) -> None:
    commit, bundle = change(project)
    other = copy(project)
    repository = UserRepository(other.folder)
    repository.import_bundle(bundle)
    project.git("branch", BRANCH, commit)
    second, bundle = another(project)
    assert [repository.import_bundle(bundle), repository.import_bundle(bundle)] == [second] * 2
    assert other.branches() == {f"refs/heads/{BRANCH}": commit}
    other.git("reflog", "expire", "--expire=now", "--all")
    other.git("gc", "--quiet", "--prune=now")
    assert repository.has(second)


def test_a_branch_is_published_once_with_its_answer(project: Project) -> None:
    commit, bundle = change(project)
    repository = UserRepository(project.folder)
    assert repository.publish(bundle, b"first") == commit
    with pytest.raises(BranchTaken):
        repository.publish(bundle, b"second")
    with pytest.raises(BranchTaken):
        repository.publish(another(project)[1], b"third")
    assert (repository.branch(BRANCH), repository.answer(BRANCH)) == (commit, b"first")


def test_only_who_published_a_branch_withdraws_it(project: Project) -> None:
    commit, bundle = change(project)
    repository = UserRepository(project.folder)
    repository.publish(bundle, b"first")
    repository.withdraw(BRANCH, b"second")
    assert repository.branch(BRANCH) == commit
    repository.withdraw(BRANCH, b"first")
    assert project.branches() == {}
    repository.import_bundle(bundle)
    repository.withdraw(BRANCH, b"first")
    assert repository.branch(BRANCH) == commit


def test_what_a_bundle_builds_on_must_be_here(project: Project) -> None:
    first, _ = change(project)
    other = copy(project)
    _, bundle = change(project, "further\n", "evolve/run/2", start=first)
    with pytest.raises(GitError, match=f"builds on the commit {first}, which is not here"):
        UserRepository(other.folder).import_bundle(bundle)
    assert other.branches() == {}


@pytest.mark.parametrize(
    ("content", "printed"),
    [
        (b"rubbish\n\nPACK", "not a git bundle"),
        (b"# v2 git bundle\n\n", "exactly one branch"),
        (b"# v2 git bundle\n" + b"d" * 40 + b" refs/heads/main\n\n", "not of the form"),
        (b"# v2 git bundle\n" + b"d" * 40 + b" refs/heads/evolve/../1\n\n", "not of the form"),
        (b"# v2 git bundle\n" + b"d" * 40 + b" refs/heads/evolve/run/1\nmore\n\n", "means nothing here"),
        (b"# v2 git bundle\n" + b"d" * 40 + b" refs/heads/evolve/run/1\n\nPACK", "eof|EOF"),
    ],
)
def test_what_is_no_bundle_of_a_mutation_is_refused(project: Project, content: bytes, printed: str) -> None:
    before = project.digest()
    with pytest.raises(GitError, match=printed):
        UserRepository(project.folder).import_bundle(content)
    assert (project.branches(), project.digest()) == ({}, before)


@pytest.mark.parametrize("name", [".GIT", ".."])
def test_a_commit_that_git_finds_dangerous_is_not_taken(project: Project, name: str) -> None:
    blob = project.git("rev-parse", "HEAD:app.py")
    entry = b"100644 " + name.encode() + b"\0" + bytes.fromhex(blob)
    hashed = ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"]
    tree = subprocess.run(hashed, cwd=project.folder, input=entry, capture_output=True, check=True).stdout.decode()
    commit = project.git("commit-tree", tree.strip(), "-p", "HEAD", "-m", "bad")
    project.git("update-ref", f"refs/heads/{BRANCH}", commit)
    file = project.folder.parent / "bundle"
    project.git("bundle", "create", "--quiet", str(file), BRANCH, "^main")
    project.git("update-ref", "-d", f"refs/heads/{BRANCH}")
    other = copy(project)
    with pytest.raises(GitError):
        UserRepository(other.folder).import_bundle(file.read_bytes())
    assert other.branches() == {}


def test_what_a_killed_git_left_in_the_way_of_a_branch_is_swept(project: Project) -> None:
    commit, bundle = change(project)
    repository = UserRepository(project.folder)
    for place in ("heads/evolve/run", "evolverpc/run"):
        (folder := project.folder / ".git/refs" / place).mkdir(parents=True)
        (folder / "1.lock").touch()
    with pytest.raises(GitError):
        repository.publish(bundle, b"answer")
    repository.sweep()
    assert repository.publish(bundle, b"answer") == commit
