"""A commit whose manifest differs has an environment of its own, built once for all with the same one."""

import asyncio
import json
import os
import shutil
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from evolverpc_common import build_cache
from evolverpc_common.files import lock_if_free
from protocol.errors import ProgramFailed
from rpc_server.settings import Settings
from rpc_server.worktrees.environments import CommitEnvironments, Environment, manifests_of
from rpc_server.worktrees.repository import UserRepository
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.worktrees.worktree_project import Open, second
from tests.sandbox_runtime.environments.wheels import local_package, make_wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are installed from, instead of an index."""
    folder = tmp_path / "wheels"
    for version in ("1.0", "2.0"):
        make_wheel(folder, "tinydep", version, {"tinydep.py": f"VERSION = {version!r}\n"})
    for name, value in {"UV_OFFLINE": "1", "UV_NO_INDEX": "1", "UV_NO_CONFIG": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def environments(project: Project, cache: Path, **given: Any) -> CommitEnvironments:
    usual: dict[str, Any] = {"program": "app.py", "python": Path(sys.executable)}
    settings = Settings(root=project.folder, trees=True, **(given or usual))
    return CommitEnvironments(UserRepository(project.folder), settings, project.first, cache)


def empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


async def test_a_commit_that_requires_more_has_it_and_others_have_not(
    project: Project, opened: Open, wheels: Path
) -> None:
    app = "import tinydep\nANSWER = tinydep.VERSION\n"
    one = second(project, {"helper.py": app, "requirements.txt": "-r base.txt\n", "base.txt": "tinydep==1.0\n"})
    two = second(project, {"helper.py": app, "requirements.txt": "-r base.txt\n", "base.txt": "tinydep==2.0\n"})
    lacking = second(project, {"helper.py": app, "requirements.txt": "tinydep==3.0\n"})
    here = await opened(project, env={"PATH": os.defpath})
    messages = await asyncio.gather(*(here.output(here.at(commit)) for commit in (project.first, one, two)))
    assert [each["answer"] for each in messages] == [1, "1.0", "2.0"]
    assert messages[0]["python"] == sys.executable
    assert messages[0]["env"]["PATH"] == f"{Path(sys.executable).parent}:{os.defpath}"
    for each in messages[1:]:
        venv = each["env"]["VIRTUAL_ENV"]
        assert each["python"].startswith(venv)
        assert each["env"]["PATH"].startswith(f"{venv}/bin:")
    with pytest.raises(ProgramFailed) as failed:
        await here.results(here.at(lacking))
    assert failed.value.retryable, "the server that made the commit could build it"


async def test_a_package_of_the_repository_has_the_files_of_each_commit(
    project: Project, opened: Open, wheels: Path
) -> None:
    files = {"helper.py": "import words\nANSWER = words.VALUE\n", "requirements.txt": "./libs/words\n"}
    commits = [second(project, {**files, **local_package("libs/words/", "words", value)}) for value in ("a", "b")]
    here = await opened(project)
    assert [(await here.output(here.at(commit)))["answer"] for commit in commits] == ["a", "b"]


def used_again(monkeypatch: pytest.MonkeyPatch, complete: Path) -> None:
    """Let an environment that is unused for long be used while it is about to be removed."""

    def lock(file: Path) -> AbstractContextManager[bool]:
        os.utime(complete)
        return lock_if_free(file)

    monkeypatch.setattr(build_cache, "lock_if_free", lock)
    os.utime(complete, (0, 0))


async def test_an_environment_is_built_once_though_two_servers_ask_at_once(
    project: Project, cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = [second(project, {"helper.py": f"ANSWER = {n}\n", "requirements.txt": "tinydep\n"}) for n in (2, 3)]
    servers = [environments(project, cache) for _ in range(2)]
    found = await asyncio.gather(*(server.of(commit) for server in servers for commit in commits))
    assert len({each.venv for each in found}) == 1
    complete, *others = (cache / "environments").glob("*/*/complete")
    assert others == []
    assert found[0].venv is not None
    empty(wheels)
    os.utime(complete, (0, 0))
    assert await servers[0].of(commits[0]) == found[0]
    builds = build_cache.BuildCache(cache / "environments")
    builds.sweep()  # of those that are unused for long
    used_again(monkeypatch, complete)
    builds.sweep()
    assert complete.exists()
    assert found[0].venv.is_dir()
    (found[0].venv / "bin/python").unlink()
    (found[0].venv / "bin/python").symlink_to("/gone")  # as when its interpreter was removed
    with pytest.raises(ProgramFailed):
        await servers[0].of(commits[0])
    complete.unlink()  # as when the building was interrupted
    with pytest.raises(ProgramFailed) as failed:
        await servers[0].of(commits[0])
    assert failed.value.details["stage"] == "environment"
    assert "tinydep" in failed.value.details["log_tail"]
    assert not found[0].venv.exists()


@pytest.mark.parametrize(
    ("file", "before", "after", "differs"),
    [
        ("requirements.txt", "a\n", "b\n", True),
        ("notes.txt", "a\n", "b\n", False),
        ("pyproject.toml", "[project]\ndependencies = []\n", "[project]\ndependencies = ['a']\n", True),
        ("package.json", '{"dependencies": {}}', '{"dependencies": {"a": "1"}}', True),
        ("package.json", "{", "[" * 5000, True),
    ],
)
def test_manifests_differ_if_their_requirements_do(
    tmp_path: Path, file: str, before: str, after: str, differs: bool
) -> None:
    project = Project(tmp_path, {file: before})
    other = second(project, {file: after})
    repository = UserRepository(project.folder)
    digests = [
        {language: manifest.digest for language, manifest in manifests_of(repository, commit).items()}
        for commit in (project.first, other)
    ]
    assert (digests[0] != digests[1]) is differs


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_a_node_program_has_the_packages_of_its_commit(project: Project, cache: Path, tmp_path: Path) -> None:
    package = tmp_path / "tinypkg"
    package.mkdir()
    (package / "package.json").write_text('{"name": "tinypkg", "version": "1.0.0"}')
    asked = {"dependencies": {"tinypkg": f"file:{package}"}, "scripts": {"prepare": "touch node_modules/made"}}
    other = second(project, {"package.json": json.dumps(asked)})
    built = environments(project, cache, command=("node", "x.js"))
    here = await built.of(other)
    assert here.node_packages is not None
    assert here.node_folders == ("",)
    modules = here.node_packages / "node_modules"
    assert (modules / "tinypkg/package.json").is_file()
    assert (modules / "made").is_file()
    assert str(modules / ".bin") in here.variables["PATH"]
    assert await built.of(project.first) == Environment(variables={"PATH": here.variables["PATH"].partition(":")[2]})


HOSTILE = """
import pathlib
from backend import *
from backend import build_editable as honest
venv, outside = pathlib.Path("../../venv").resolve(), pathlib.Path({outside!r})
def build_editable(*given):
    {act}
    return honest(*given)
"""


def hostile(tmp_path: Path, act: str) -> dict[str, str]:
    """A package whose build does this."""
    files = local_package("", "words", "ours")
    files["hostile.py"] = HOSTILE.format(outside=str(tmp_path / "outside"), act=act)
    files["pyproject.toml"] = files["pyproject.toml"].replace('"backend"', '"hostile"')
    return files


async def test_a_path_that_a_build_prints_is_on_no_path_unless_the_commit_has_files_there(
    project: Project, cache: Path, tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(project.folder))
    printed = f"{tmp_path}:../up:src/../../up:none:src"
    act = f"""next(venv.glob("lib/*/site-packages")).joinpath("print.pth").write_text(
        "import atexit; atexit.register(print, {printed!r})")"""
    here = await environments(project, cache).of(second(project, hostile(tmp_path, act)))
    assert here.venv is not None
    assert here.import_paths == ("src", "")


@pytest.mark.parametrize(
    "act",
    [
        "venv.joinpath('bin').rename(outside); venv.joinpath('bin').symlink_to(outside)",
        pytest.param("venv.rename(outside); venv.symlink_to(outside)", marks=pytest.mark.long),
        pytest.param(
            "outside.mkdir(); venv.joinpath('bin/python').unlink(); venv.joinpath('bin/python').symlink_to(outside)",
            marks=pytest.mark.long,
        ),
    ],
)
async def test_an_environment_whose_folders_a_build_replaced_by_links_is_refused_before_it_is_used(
    project: Project, cache: Path, tmp_path: Path, wheels: Path, act: str
) -> None:
    with pytest.raises(ProgramFailed, match=f"venv/bin.* leads to {tmp_path}/outside.*, out of"):
        await environments(project, cache).of(second(project, hostile(tmp_path, act)))
    assert list((cache / "environments").glob("*/*/")) == []


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_a_folder_of_commands_that_leads_elsewhere_is_refused(
    project: Project, cache: Path, tmp_path: Path
) -> None:
    act = f"mkdir -p node_modules {tmp_path}/outside && ln -s {tmp_path}/outside node_modules/.bin"
    asked = {"dependencies": {}, "workspaces": ["none"], "scripts": {"postinstall": act}}
    other = second(project, {"package.json": json.dumps(asked)})
    with pytest.raises(ProgramFailed, match=r"node_modules/\.bin leads to"):
        await environments(project, cache, command=("node", "x.js")).of(other)


async def test_no_repository_or_interpreter_gets_what_was_built_for_another(
    project: Project, cache: Path, tmp_path: Path, wheels: Path
) -> None:
    another = Project(tmp_path / "another", {"app.py": "", "requirements.txt": ""})
    asked = {"requirements.txt": "tinydep==1.0\n"}
    commits = [second(each, asked) for each in (project, another)]
    found = [await environments(each, cache).of(at) for each, at in zip((project, another), commits, strict=True)]
    (tmp_path / "python").symlink_to(sys.executable)
    of_another_python = environments(project, cache, program="app.py", python=tmp_path / "python")
    found.append(await of_another_python.of(commits[0]))
    assert len({each.venv for each in found}) == 3
    another.git("rm", "--quiet", "requirements.txt")
    assert (await environments(another, cache).of(another.commit("Without"))).venv is None
