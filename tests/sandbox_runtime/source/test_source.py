"""A commit on its way into a sandbox: found, fetched alone, packed, and unpacked there."""

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolverpc_common.files import lock_if_free
from sandbox_runtime import SandboxError
from sandbox_runtime.source import Checkout, GitFailed, Source
from tests.sandbox_runtime.source.repositories import commit, git

FILES = {"app/program.py": "print('one')\n", "app/requirements.txt": "x\n", "top.txt": "top"}


@pytest.fixture
def cache() -> Iterator[Path]:
    """On another disk than the repositories."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "cache"


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
    command = checkout.unpack_command()
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


async def ready(repository: str, cache: Path, ref: str = "HEAD", progress: list[str] | None = None) -> Checkout:
    return await Source(repository, ref, cache=cache).ready(
        on_progress=(progress if progress is not None else []).append
    )


async def test_a_folder_resolves_to_its_commit_and_its_path_in_the_repository(repository: Path, cache: Path) -> None:
    (repository / "app/requirements.txt").chmod(0o755)
    commit(repository, {})
    checkout = await ready(str(repository / "app"), cache)
    assert (checkout.commit, checkout.branch) == (git(repository, "rev-parse", "HEAD"), "trunk")
    assert (checkout.folder, checkout.cwd) == ("app", "program/app")
    assert checkout.needs.install is not None
    assert checkout.needs.install.decided_by == "app/requirements.txt"
    other = await ready(shutil.copytree(repository, cache.with_name("fork")).as_posix() + "/app", cache)
    assert other.commit == checkout.commit
    assert other.needs.digest != checkout.needs.digest, "a fork's build scripts make no other's packages"


async def test_only_the_commit_is_unpacked_without_remotes_hooks_or_settings(
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


async def test_a_ref_may_be_a_branch_a_tag_or_a_commit_here_and_elsewhere(repository: Path, cache: Path) -> None:
    wanted = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "--annotate", "--message=one", "v1")
    git(repository, "tag", "release")
    git(repository, "branch", "topic")
    commit(repository, {"later.txt": "later"})
    git(repository, "branch", "v1")  # a tag of this name comes first
    here, elsewhere = str(repository), f"file://{repository}"
    for where, ref in ((here, "release"), (here, "topic"), (here, wanted[:12]), (elsewhere, "v1"), (elsewhere, wanted)):
        checkout = await ready(where, cache, ref)
        assert checkout.commit == wanted
        assert checkout.branch == ("topic" if ref == "topic" else "main")
        assert git(unpack(checkout, cache.with_name(f"at {ref}")), "branch", "--show-current") == checkout.branch


async def test_files_whose_content_git_lfs_holds_are_named(repository: Path, cache: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1f\nsize 1\n"
    commit(repository, {"app/prompt.txt": pointer})  # before its attributes, as git-lfs may not be here
    commit(repository, {".gitattributes": "*.txt filter=lfs\n", "app/other.txt": "a\n", "app/Pipfile": ""})
    progress: list[str] = []
    await ready(str(repository / "app"), cache, progress=progress)
    assert progress[-2:] == [
        "the content of app/prompt.txt is left out: Git LFS holds it, and the program reads a pointer",
        "app/Pipfile: not used, app/requirements.txt decides",
    ]


@pytest.mark.parametrize(
    ("ref", "folder", "message"),
    [("nowhere", "", "no commit"), ("--all", "", "not the name"), ("HEAD", "missing", "no folder")],
)
async def test_a_missing_ref_or_folder_is_an_error(
    repository: Path, cache: Path, ref: str, folder: str, message: str
) -> None:
    with pytest.raises(SandboxError, match=message):
        await ready(str(repository / folder), cache, ref)
    with pytest.raises(SandboxError, match=message.replace("no commit", "no branch and no tag")):
        await ready(f"file://{repository}#{folder}", cache, ref)


async def test_only_the_commit_of_a_remote_repository_is_fetched_and_only_once(
    repository: Path, cache: Path, tmp_path: Path
) -> None:
    progress: list[str] = []
    checkout = await ready(f"file://{repository}#app", cache, progress=progress)
    assert (checkout.commit, checkout.branch) == (git(repository, "rev-parse", "HEAD"), "trunk")
    assert (unpack(checkout, tmp_path / "workspace") / "app/program.py").read_text() == FILES["app/program.py"]
    assert commits_of_mirrors(cache) == [checkout.commit]
    assert len(progress) == 1
    (mirror,) = (cache / "mirrors").iterdir()
    os.utime(mirror, (0, 0))
    take_away(repository)
    again = await ready(f"file://{repository}#app", cache, checkout.commit, progress)
    assert (again.commit, mirror.stat().st_mtime > 0) == (checkout.commit, True)
    assert len(progress) == 1


async def test_a_sweep_leaves_a_mirror_in_use_and_cannot_fail_a_start(
    repository: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = tmp_path / "elsewhere"
    commit(elsewhere, FILES)
    await ready(f"file://{repository}", cache)
    (mirror,), (tar,) = inside(cache / "mirrors"), inside(cache / "commits")
    for path in (mirror, tar):
        os.utime(path, (0, 0))
    with lock_if_free(cache / "locks" / mirror.name) as held:
        assert held
        commit(elsewhere, {"more.txt": "1"})
        await ready(str(elsewhere), cache)
        assert mirror.exists()
    commit(elsewhere, {"more.txt": "2"})
    with monkeypatch.context() as patch:
        patch.setattr("sandbox_runtime.source.source.remove_tree", failing)
        await ready(str(elsewhere), cache)
    assert "it is stuck" in caplog.text
    commit(elsewhere, {"more.txt": "3"})
    await ready(str(elsewhere), cache)
    assert not mirror.exists() and not tar.exists()


def failing(_: Path) -> None:
    raise OSError("it is stuck")


async def test_manifests_and_commits_that_are_too_large_are_refused_before_they_are_read(
    repository: Path, cache: Path
) -> None:
    with pytest.raises(SandboxError, match="is of 2 MB, and a sandbox's workspace of 1 MB"):
        commit(repository, {"data": "0" * 2**21})
        await Source(str(repository), cache=cache, most_mb=1).ready(on_progress=print)
    commit(repository, {"requirements.txt": "\0" * (2**24 + 1)})
    with pytest.raises(SandboxError, match=r"more than 16 MB.* largest is requirements\.txt"):
        await ready(str(repository), cache)
    assert inside(cache / "commits") == []


def inside(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_the_cache_is_private_to_its_user(repository: Path, cache: Path) -> None:
    os.makedirs(cache / "commits", 0o755)  # noqa: PTH103  as it was before
    checkout = await ready(f"file://{repository}", cache)
    assert {mode(path) for path in (cache, *inside(cache))} == {0o700}
    assert mode(checkout.tar) == 0o600


async def test_no_command_that_a_repositorys_own_configuration_names_is_run(repository: Path, cache: Path) -> None:
    commit(repository, {".gitattributes": "* filter=one.two\n", "top.txt": "same"})
    mark = repository.parent / "ran"
    command = f"touch {mark}; cat; false"
    for name in ("filter.one.two.clean", "filter.one.two.process", "core.fsmonitor", "remote.origin.uploadpack"):
        git(repository, "config", name, command)
    for name, value in {
        "filter.one.two.required": "true",
        "remote.origin.url": f"file://{repository}",
        "remote.origin.promisor": "true",
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
    }.items():
        git(repository, "config", name, value)
    (repository / "new.txt").write_text("new")
    (repository / "top.txt").write_text("SAME")  # only the content shows the change
    os.utime(repository / "top.txt", (1, 1))
    progress: list[str] = []
    await ready(str(repository), cache, progress=progress)
    assert "2 uncommitted changes left out" in progress[0] and "new.txt" in progress[0]
    blob = git(repository, "rev-parse", "HEAD:app/requirements.txt")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(GitFailed, match=blob):
        await ready(str(repository / "app"), cache)
    assert not mark.exists()


async def test_a_killed_fetch_does_not_block_the_next_one(repository: Path, cache: Path) -> None:
    await ready(f"file://{repository}", cache)
    for mirror in (cache / "mirrors").iterdir():
        (mirror / "shallow.lock").touch()
    wanted = commit(repository, {"later.txt": "later"})
    assert (await ready(f"file://{repository}", cache)).commit == wanted
