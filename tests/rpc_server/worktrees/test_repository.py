"""The user's repository, wherever and however it lies: what is taken from it, given to it, and left alone."""

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
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
    project.write({".gitattributes": "*.txt filter=a=b\n"})
    (tmp_path / "ran").unlink(missing_ok=True)
    repository = UserRepository(project.folder)
    repository.check_out(project.first, tmp_path / "tree")
    commit = project.commit("Attributes")
    (tmp_path / "ran").unlink()  # proof that git itself runs it
    repository.check_out(commit, tmp_path / "other")
    assert (tmp_path / "other/notes/one.txt").read_bytes() == (project.folder / "notes/one.txt").read_bytes()
    os.utime(project.folder / "notes/one.txt", (0, 0))
    assert repository.changed() == []
    assert repository.filters(commit) == ["a=b"]
    assert not (tmp_path / "ran").exists()


def test_files_that_are_as_the_users_settings_have_them_have_not_changed(project: Project) -> None:
    project.git("config", "core.fileMode", "false")
    project.git("config", "core.autocrlf", "true")
    (project.folder / "app.py").chmod(0o755)
    (text := project.folder / "texts.py").unlink()
    project.git("checkout", "--", "texts.py")
    assert b"\r\n" in text.read_bytes()
    os.utime(text, (0, 0))  # so that git looks into it
    assert UserRepository(project.folder).changed() == []
    project.git("config", "--unset", "core.fileMode")
    project.git("config", "--unset", "core.autocrlf")
    assert UserRepository(project.folder).changed() == ["app.py", "texts.py"]


def test_a_file_that_was_only_touched_has_not_changed(project: Project) -> None:
    os.utime(project.folder / "app.py")
    before = project.digest()
    assert UserRepository(project.folder).changed() == []
    assert project.digest() == before


def test_contents_are_read_many_at_once(project: Project) -> None:
    repository = UserRepository(project.folder)
    asked = ["notes/one.txt", "notes/latin.txt", "notes", "nowhere", "notes/link.txt"]
    found = repository.read_all(project.first, asked)
    assert found["notes/latin.txt"] == b"caf\xe9\n"
    assert found["notes/link.txt"] == b"one.txt"
    assert sorted(found) == ["notes/latin.txt", "notes/link.txt", "notes/one.txt"]
    assert repository.read(project.first, "nowhere") is None


def test_only_a_commits_full_id_is_known(project: Project) -> None:
    repository = UserRepository(project.folder)
    tree = project.git("rev-parse", "HEAD^{tree}")
    asked = (project.first, project.first[:39], tree, "d" * 40, "HEAD")
    assert [repository.has(one) for one in asked] == [True, False, False, False, False]


@pytest.mark.parametrize("name", ["with space", "with:colon", "ünï", ".hidden/deep"])
def test_the_program_may_be_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    project = Project(tmp_path / name, {f"{name}/app.py": "x = 1\n"})
    repository = UserRepository(project.folder / name)
    assert repository.prefix == name
    repository.check_out(project.first, tmp_path / "tree")
    assert (tmp_path / "tree" / name / "app.py").read_text() == "x = 1\n"


def test_the_root_may_be_a_link_into_the_repository(project: Project, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project.folder / "notes")
    repository = UserRepository(tmp_path / "link")
    assert (repository.top, repository.prefix, repository.git_dir) == (
        project.folder,
        "notes",
        project.folder / ".git",
    )
    assert repository.head() == ("main", project.first)


def test_the_root_may_be_a_linked_worktree_with_a_head_of_its_own(project: Project, tmp_path: Path) -> None:
    project.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    project.git("-C", str(tmp_path / "linked"), "commit", "--quiet", "--allow-empty", "--message", "there")
    repository = UserRepository(tmp_path / "linked")
    there = project.git("-C", str(tmp_path / "linked"), "rev-parse", "HEAD")
    assert repository.head() == ("detached", there)
    assert repository.git_dir == project.folder / ".git"
    repository.check_out(there, tmp_path / "tree")
    assert (tmp_path / "tree/app.py").is_file()


def test_a_repository_in_the_environment_is_not_the_one(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Project(tmp_path / "other")
    before = other.digest()
    for name, value in {"DIR": ".git", "INDEX_FILE": ".git/index", "WORK_TREE": ".", "NAMESPACE": "n"}.items():
        monkeypatch.setenv(f"GIT_{name}", str(other.folder / value))
    repository = UserRepository(project.folder)
    assert repository.top == project.folder
    repository.check_out(project.first, tmp_path / "tree")
    assert (tmp_path / "tree/tools/run.sh").is_file()
    for name in ("DIR", "INDEX_FILE", "WORK_TREE", "NAMESPACE"):
        monkeypatch.delenv(f"GIT_{name}")
    assert other.digest() == before


def nothing(folder: Path) -> None:
    folder.mkdir()


def no_commit(folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet", folder], check=True)


def bare(folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", folder], check=True)


@pytest.mark.parametrize(
    ("make", "printed"),
    [(nothing, "git init, git add, git commit"), (no_commit, "no commit yet"), (bare, "bare repository")],
)
def test_without_a_first_commit_the_error_names_the_next_step(
    tmp_path: Path, make: Callable[[Path], None], printed: str
) -> None:
    make(tmp_path / "folder")
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


def test_taking_again_changes_nothing(project: Project) -> None:
    commit, bundle = change(project)
    repository = UserRepository(project.folder)
    assert [repository.import_bundle(bundle), repository.import_bundle(bundle)] == [commit] * 2
    assert project.branches() == {f"refs/heads/{BRANCH}": commit}


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


def test_an_answer_that_outlived_its_branch_is_not_the_next_one_s(project: Project) -> None:
    commit, bundle = change(project)
    repository = UserRepository(project.folder)
    repository.publish(bundle, b"first")
    project.git("branch", "--quiet", "-D", BRANCH)
    repository.publish(bundle, b"second")
    assert (repository.branch(BRANCH), repository.answer(BRANCH)) == (commit, b"second")
    project.git("branch", "--quiet", "-D", BRANCH)
    repository.import_bundle(bundle)
    assert (repository.branch(BRANCH), repository.answer(BRANCH)) == (commit, None)


def test_a_failure_of_git_is_not_taken_for_a_missing_object(project: Project) -> None:
    repository = UserRepository(project.folder)
    assert repository.branch(BRANCH) is None
    (project.folder / ".git/config").write_text("[rubbish")
    with pytest.raises(GitError, match="config"):
        repository.branch(BRANCH)


def test_a_bundle_builds_on_commits_that_no_branch_leads_to_any_more(project: Project) -> None:
    _, bundle = change(project)
    project.git("commit", "--quiet", "--amend", "--message", "amended")
    project.git("reflog", "expire", "--expire=now", "--all")
    repository = UserRepository(project.folder)
    assert repository.branch(BRANCH) is None
    assert repository.has(repository.import_bundle(bundle))


def test_a_shallow_clone_takes_what_builds_on_its_last_commit(project: Project, tmp_path: Path) -> None:
    project.write({"app.py": "x = 2\n"})
    head = project.commit("second")
    commit, bundle = change(project)
    project.git("clone", "--quiet", "--depth=1", f"file://{project.folder}", str(tmp_path / "shallow"))
    repository = UserRepository(tmp_path / "shallow")
    assert not repository.has(project.first)
    assert repository.has(head)
    assert repository.import_bundle(bundle) == commit
    repository.check_out(commit, tmp_path / "tree")
    assert (tmp_path / "tree/notes/one.txt").read_text() == "changed\n"


def test_what_a_bundle_builds_on_must_be_here(project: Project) -> None:
    first, _ = change(project)
    other = copy(project)
    _, bundle = change(project, "further\n", "evolve/run/2", start=first)
    with pytest.raises(GitError, match=f"builds on the commit {first}, which is not here"):
        UserRepository(other.folder).import_bundle(bundle)
    assert other.branches() == {}


HEADS = "# v2 git bundle\n{} refs/heads/evolve/run/1\n"


@pytest.mark.parametrize(
    ("content", "printed"),
    [
        (b"", "not a git bundle"),
        (b"rubbish\n\nPACK", "not a git bundle"),
        (b"# v2 git bundle\n\n", "exactly one branch"),
        (b"# v2 git bundle\n" + b"d" * 40 + b" HEAD\n\n", "exactly one branch"),
        (b"# v2 git bundle\n" + b"d" * 40 + b" refs/heads/main\n\n", "not of the form"),
        (b"# v2 git bundle\n" + b"d" * 40 + b" refs/heads/evolve/../1\n\n", "not of the form"),
        (b"# v2 git bundle\n" + b"d" * 40 + b" refs/heads/evolve/run/1\nmore\n\n", "means nothing here"),
        (b"# v3 git bundle\n@filter=blob:none\n" + b"d" * 40 + b" refs/heads/evolve/run/1\n\n", "means nothing here"),
        (b"# v2 git bundle\n" + b"d" * 40 + b" refs/heads/evolve/run/1\n\nPACK", "eof|EOF"),
    ],
)
def test_what_is_no_bundle_of_a_mutation_is_refused(project: Project, content: bytes, printed: str) -> None:
    before = project.digest()
    with pytest.raises(GitError, match=printed):
        UserRepository(project.folder).import_bundle(content)
    assert (project.branches(), project.digest()) == ({}, before)


def test_a_bundle_cut_short_is_refused(project: Project) -> None:
    commit, bundle = change(project)
    other = copy(project)
    repository = UserRepository(other.folder)
    for size in (bundle.index(b"PACK") + 4, len(bundle) - 30):
        with pytest.raises(GitError):
            repository.import_bundle(bundle[:size])
    assert other.branches() == {}
    assert repository.import_bundle(bundle) == commit


@pytest.mark.parametrize("name", [".git", ".GIT", "..", ".", "a/b"])
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


def test_two_servers_that_take_the_same_commit_at_once_both_have_it(project: Project) -> None:
    commit, bundle = change(project)
    repositories = [UserRepository(project.folder) for _ in range(2)]
    taken: list[str] = []
    threads = [threading.Thread(target=lambda one=one: taken.append(one.import_bundle(bundle))) for one in repositories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == [commit, commit]


def test_what_a_killed_git_left_in_the_way_of_a_branch_is_swept(project: Project) -> None:
    commit, bundle = change(project)
    repository = UserRepository(project.folder)
    lock = project.folder / ".git/refs/heads/evolve/run/1.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    with pytest.raises(GitError):
        repository.import_bundle(bundle)
    repository.sweep()
    assert repository.import_bundle(bundle) == commit
