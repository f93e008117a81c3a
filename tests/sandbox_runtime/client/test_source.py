"""A commit on its way into a sandbox: found, fetched alone, packed, and unpacked there."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from sandbox_runtime import SandboxError
from sandbox_runtime.client import Checkout, Source
from tests.sandbox_runtime.client.repositories import commit, git

FILES = {"app/program.py": "print('one')\n", "app/requirements.txt": "x\n", "top.txt": "top"}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    commit(folder, {"old.txt": "what was there before"})
    (folder / "old.txt").unlink()
    commit(folder, FILES)
    return folder


def unpack(checkout: Checkout, workspace: Path) -> Path:
    """What a sandbox does with it, without a home or any setting of git's."""
    workspace.mkdir()
    for command in checkout.setup():
        assert isinstance(command.stdin, Path)
        with command.stdin.open("rb") as stdin:
            environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null"}
            subprocess.run(command.argv, cwd=workspace, stdin=stdin, check=True, env=environment, timeout=60)
    return workspace / "program"


def take_away(repository: Path) -> None:
    repository.rename(repository.with_name("gone"))


def commits_of_mirrors(cache: Path) -> list[str]:
    check = ("cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)")
    listed = [line for mirror in (cache / "mirrors").iterdir() for line in git(mirror, *check).splitlines()]
    return [line.split()[1] for line in listed if line.startswith("commit")]


async def ready(repository: str, cache: Path, ref: str = "HEAD", told: list[str] | None = None) -> Checkout:
    return await Source(repository, ref, cache=cache).ready(told=(told if told is not None else []).append)


async def test_a_folder_gives_its_commit_and_where_it_is_in_the_repository(repository: Path, cache: Path) -> None:
    checkout = await ready(str(repository / "app"), cache)
    assert (checkout.commit, checkout.branch) == (git(repository, "rev-parse", "HEAD"), "trunk")
    assert (checkout.folder, checkout.cwd) == ("app", "program/app")
    assert checkout.needs.recipe.files == {"requirements.txt": b"x\n"}


async def test_what_is_unpacked_is_the_commit_alone_without_remote_or_hook_or_setting(
    repository: Path, cache: Path, tmp_path: Path
) -> None:
    (repository / ".git" / "hooks").mkdir(exist_ok=True)
    (repository / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch ../hooked\n")
    (repository / ".git" / "hooks" / "post-checkout").chmod(0o755)
    git(repository, "config", "http.extraHeader", "secret")
    git(repository, "remote", "add", "origin", "https://example.com/o/r")
    checkout = await ready(str(repository), cache)
    program = unpack(checkout, tmp_path / "workspace")
    assert {path: (program / path).read_text() for path in FILES} == FILES
    assert git(program, "status", "--porcelain") == ""
    assert git(program, "log", "--format=%H %D") == f"{checkout.commit} grafted, HEAD -> trunk"
    assert git(program, "remote") == ""
    assert git(program, "fsck", "--strict") == ""
    assert "secret" not in (program / ".git" / "config").read_text()
    with tarfile.open(checkout.tar) as tar:
        assert not [name for name in tar.getnames() if "hooks" in name or "logs" in name]
    objects = git(program, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)").split()
    assert sorted(objects) == ["blob", "blob", "blob", "commit", "tree", "tree"]


async def test_the_second_time_nothing_is_packed(repository: Path, cache: Path) -> None:
    first = await ready(str(repository), cache)
    written = first.tar.stat().st_ino
    assert (await ready(str(repository / "app"), cache)).tar.stat().st_ino == written


@pytest.mark.parametrize("ref", ["release", "v1", "topic", "short"])
async def test_a_ref_may_be_a_branch_a_tag_or_a_commit(repository: Path, cache: Path, ref: str) -> None:
    wanted = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "--annotate", "--message=one", "v1")
    git(repository, "tag", "release")
    git(repository, "branch", "topic")
    commit(repository, {"later.txt": "later"})
    checkout = await ready(str(repository), cache, wanted[:12] if ref == "short" else ref)
    assert checkout.commit == wanted
    assert checkout.branch == ("topic" if ref == "topic" else "main")


async def test_what_is_uncommitted_is_left_out_and_told(repository: Path, cache: Path, tmp_path: Path) -> None:
    (repository / "app" / "program.py").write_text("changed")
    (repository / "app" / "new.py").write_text("new")
    told: list[str] = []
    checkout = await ready(str(repository / "app"), cache, told=told)
    assert "2 uncommitted changes are left out" in told[0]
    assert "app/program.py" in told[0]
    program = unpack(checkout, tmp_path / "workspace")
    assert (program / "app/program.py").read_text() == FILES["app/program.py"]


@pytest.mark.parametrize(
    ("ref", "folder", "said"),
    [("nowhere", "", "no commit"), ("--all", "", "not the name"), ("HEAD", "missing", "no folder")],
)
async def test_what_is_not_there_is_told(repository: Path, cache: Path, ref: str, folder: str, said: str) -> None:
    with pytest.raises(SandboxError, match=said):
        await ready(str(repository / folder), cache, ref)
    with pytest.raises(SandboxError, match=said.replace("no commit", "no branch and no tag")):
        await ready(f"file://{repository}#{folder}", cache, ref)


async def test_a_folder_that_is_in_no_repository_is_told_with_what_to_do(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(SandboxError, match="git init, git add, git commit"):
        await ready(str(tmp_path), cache)


async def test_a_repository_elsewhere_is_fetched_at_that_commit_alone_and_once(
    repository: Path, cache: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    checkout = await ready(f"file://{repository}#app", cache, told=told)
    assert (checkout.commit, checkout.branch) == (git(repository, "rev-parse", "HEAD"), "trunk")
    assert (unpack(checkout, tmp_path / "workspace") / "app/program.py").read_text() == FILES["app/program.py"]
    assert commits_of_mirrors(cache) == [checkout.commit]
    assert len(told) == 1
    take_away(repository)
    again = await ready(f"file://{repository}#app", cache, checkout.commit, told)
    assert again.commit == checkout.commit
    assert len(told) == 1


@pytest.mark.parametrize("ref", ["v1", "topic", "earlier"])
async def test_branches_tags_and_whole_ids_are_looked_up_elsewhere(repository: Path, cache: Path, ref: str) -> None:
    wanted = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "--annotate", "--message=one", "v1")
    git(repository, "branch", "topic")
    commit(repository, {"later.txt": "later"})
    checkout = await ready(f"file://{repository}", cache, wanted if ref == "earlier" else ref)
    assert checkout.commit == wanted
    assert checkout.branch == ("topic" if ref == "topic" else "main")


async def test_a_fetch_that_was_killed_does_not_stand_in_the_way(repository: Path, cache: Path) -> None:
    await ready(f"file://{repository}", cache)
    for mirror in (cache / "mirrors").iterdir():
        (mirror / "shallow.lock").touch()
    wanted = commit(repository, {"later.txt": "later"})
    assert (await ready(f"file://{repository}", cache)).commit == wanted
