"""Python environments: what they hold, who may see what, and that each is built once."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from evolverpc_common.build_cache import BuiltEnvironment
from evolverpc_common.python_package_managers import python_install
from sandbox_runtime import EnvironmentMissing, Recipe, RuntimeInterrupted
from sandbox_runtime.environments import build_folder
from sandbox_runtime.environments.cache import EnvironmentCache
from tests.sandbox_runtime.environments.wheels import (
    HostRun,
    exists,
    local_package,
    make_wheel,
    packed,
    places,
    unpack_command,
)


def program(files: Mapping[str, str], folder: str = "") -> Recipe:
    manifests = {path: content.encode() for path, content in files.items() if path.endswith((".toml", ".txt"))}
    install, unread = python_install(folder, files, manifests)
    assert not unread
    return Recipe(install=install, checkout=(unpack_command(files),))


GREETING = program({"requirements.txt": "greeting==1.0\n"})


def python_output(python: str | None, code: str) -> str:
    assert python is not None
    return subprocess.check_output([python, "-I", "-c", code], text=True, env={}).strip()


async def test_a_recipe_that_asks_for_nothing_gets_nothing_and_nothing_is_built(
    environments: EnvironmentCache, cache: Path, run: HostRun
) -> None:
    assert await environments.ready(Recipe(), run=run, on_progress=print) == BuiltEnvironment()
    assert run.commands == []
    assert not exists(str(cache))


async def test_what_requirements_list_is_installed_once_and_found_the_second_time(
    environments: EnvironmentCache, run: HostRun, wheels: Path
) -> None:
    progress: list[str] = []
    built = await environments.ready(GREETING, run=run, on_progress=progress.append)
    assert python_output(built.python, "import greeting; print(greeting.WORDS)") == "hello"
    assert built.path == (str(Path(built.python or "").parent),)
    assert built.env == {"VIRTUAL_ENV": str(Path(built.python or "").parents[1])}
    assert progress == ["installing what requirements.txt lists, with uv"]
    commands = len(run.commands)
    assert await EnvironmentCache(environments.folder).ready(GREETING, run=run, on_progress=progress.append) == built
    assert len(run.commands) == commands


LOCK = """version = 1
requires-python = ">=3.8"
[manifest]
members = ["answers", "mono", "words"]
[[package]]
name = "answers"
version = "1"
source = { editable = "apps/answers" }
dependencies = [{ name = "words" }]
[[package]]
name = "mono"
version = "1"
source = { virtual = "." }
[[package]]
name = "words"
version = "1"
source = { editable = "libs/words" }
"""
WORKSPACE = {
    "pyproject.toml": """[project]\nname = "mono"\nversion = "1"\nrequires-python = ">=3.8"
[tool.uv.workspace]\nmembers = ["apps/*", "libs/*"]\n[tool.uv.sources]\nwords = { workspace = true }\n""",
    "uv.lock": LOCK,
    **local_package("libs/words/", "words", "ours"),
    **local_package("apps/answers/", "answers", "here", "words"),
}
COPIED = {"requirements.txt": "./libs/words\n", **local_package("libs/words/", "words", "ours")}


def lead_to(place: Path, source: str) -> None:
    """Put a changed file where the environment leads to: in a sandbox its own files are there."""
    assert place.readlink() == Path("/workspace/program")
    place.unlink()
    (place / source).parent.mkdir(parents=True)
    (place / source).write_text("VALUE = 'changed'\n")


@pytest.mark.parametrize(
    ("files", "folder", "decided_by", "paths"),
    [
        (local_package("", "words", "ours"), "", "pyproject.toml", ["src"]),
        (WORKSPACE, "apps/answers", "uv.lock", ["apps/answers/src", "libs/words/src"]),
        (COPIED, "", "requirements.txt", ["libs/words/src"]),
    ],
)
async def test_packages_of_the_repository_lead_to_the_files_of_each_sandbox(
    environments: EnvironmentCache,
    run: HostRun,
    wheels: Path,
    files: dict[str, str],
    folder: str,
    decided_by: str,
    paths: list[str],
) -> None:
    make_wheel(wheels, "words", "9", {"words.py": "VALUE = 'of a stranger'\n"})
    recipe = program(files, folder)
    assert recipe.install is not None
    assert recipe.install.decided_by == decided_by
    built = await environments.ready(recipe, run=run, on_progress=print)
    assert sorted(built.import_paths) == paths
    source = f"{paths[-1]}/words.py"
    lead_to(Path(built.mounts[0], "venv/program"), source)
    assert python_output(built.python, "import words; print(words.VALUE)") == "changed"
    assert program({**files, source: "VALUE = 'changed'\n"}, folder).digest == recipe.digest


async def test_only_a_version_selects_the_python(environments: EnvironmentCache, run: HostRun) -> None:
    for python in ("/usr/bin/python3", "../python", "3.11; rm", "--help"):
        with pytest.raises(EnvironmentMissing, match="write a version"):
            await environments.ready(Recipe(python=python), run=run, on_progress=print)
    assert run.commands == []


async def test_a_python_that_cannot_be_installed_is_an_error_with_the_next_step(
    environments: EnvironmentCache, cache: Path, run: HostRun
) -> None:
    progress: list[str] = []
    with pytest.raises(EnvironmentMissing, match=r"no Python 3\.99 on this machine.*put it on PATH"):
        await environments.ready(Recipe(python="3.99"), run=run, on_progress=progress.append)
    assert progress == ["fetching Python 3.99, which is not on this machine"]
    assert places(cache) == []


async def test_a_killed_command_is_an_interruption_and_leaves_nothing(
    environments: EnvironmentCache, cache: Path, run: HostRun, wheels: Path
) -> None:
    async def killed(*_: object) -> tuple[int, bytes]:
        return 137, b""

    with pytest.raises(RuntimeInterrupted, match="not built: uv was killed"):
        await environments.ready(GREETING, run=killed, on_progress=print)
    assert places(cache) == []

    async def late(*_: object) -> tuple[int, bytes]:
        raise TimeoutError

    with pytest.raises(EnvironmentMissing, match="uv took longer than"):
        await environments.ready(GREETING, run=late, on_progress=print)
    assert exists((await environments.ready(GREETING, run=run, on_progress=print)).python)


async def test_commands_that_build_know_where_packages_come_from_and_no_secret(
    environments: EnvironmentCache, run: HostRun, monkeypatch: pytest.MonkeyPatch, wheels: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not for builds")
    monkeypatch.delenv("UV_FIND_LINKS")
    (other := wheels.with_name("other")).mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", f"file://{other} {wheels}")
    await environments.ready(GREETING, run=run, on_progress=print)
    for env, readable in zip(run.envs, run.readable, strict=True):
        assert env["UV_FIND_LINKS"] == f"file://{other},{wheels}"
        assert {str(other), str(wheels)} <= {*readable}
        assert "not for builds" not in env.values()
        assert env["HOME"] != str(Path.home())


BACKEND = """
import os, pathlib
pathlib.Path(LEAK).write_text(str(dict(os.environ)))
raise SystemExit(1)
"""
BUILDS_ITSELF = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def make_sdist(folder: Path, leak: Path, code: str = BACKEND) -> None:
    """The package `leaks` 1.0, built by `code`, which by default writes its environment to a file and fails."""
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: leaks\nVersion: 1.0\n",
        "pyproject.toml": BUILDS_ITSELF,
        "backend.py": code.replace("LEAK", repr(str(leak))),
    }
    (folder / "leaks-1.0.tar.gz").write_bytes(packed(files, "leaks-1.0/"))


FILLS = """
import time
with open("filled", "wb") as file:
    for _ in range(200):
        file.write(bytes(2**20))
        file.flush()
        time.sleep(0.005)
open(LEAK, "w").close()
time.sleep(60)
"""


OWN = '[install]\ncommand = ["sh", "set-up.sh", "it is"]\nreads = ["steps"]\n'
OWN_FILES = {"app/gepa.toml": OWN, "app/requirements.txt": "none==9\n", "app/steps/one": "greeting==1.0", "x.py": ""}


async def test_the_command_of_a_program_installs_it_in_place_of_a_tool(
    environments: EnvironmentCache, run: HostRun, wheels: Path
) -> None:
    act = 'uv pip install --quiet $(cat steps/one) && test "$1" = "it is" && python -c "import greeting"\n'
    progress: list[str] = []
    recipe = program({**OWN_FILES, "app/set-up.sh": act}, "app")
    built = await environments.ready(recipe, run=run, on_progress=progress.append)
    assert python_output(built.python, "import greeting; print(greeting.WORDS)") == "hello"
    assert progress == ["installing what app/gepa.toml lists, with sh set-up.sh 'it is'"]
    for changed, is_same in (("app/steps/one", False), ("app/requirements.txt", False), ("x.py", True)):
        assert (program({**OWN_FILES, "app/set-up.sh": act, changed: "z"}, "app").digest == recipe.digest) is is_same


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("command = 'make'", "app/gepa.toml: `install.command` is 'make': give a list"),
        ("reads = ['a']", "`install.command` is None"),
        ("command = ['make']\nreads = ['a']", "`install.reads` has 'a', and the repository has no app/a"),
        ("command = ['make']\nread = ['a']", "`install` has `command` and `reads`, not 'read'"),
    ],
)
def test_a_wrong_command_of_a_program_is_named(table: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        program({"app/gepa.toml": f"[install]\n{table}\n"}, "app")


async def test_a_build_that_fills_the_disk_is_ended_and_removed(
    environments: EnvironmentCache, cache: Path, run: HostRun, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_folder, "BUILD_MB", 16)
    make_sdist(wheels, filled := wheels.with_name("filled"), FILLS)
    with pytest.raises(EnvironmentMissing, match="writes more than 16 MiB to the disk"):
        await environments.ready(Recipe(packages=("leaks",)), run=run, on_progress=print)
    assert not filled.exists()  # it was ended long before all of it was written
    assert places(cache) == []
    await environments.ready(GREETING, run=run, on_progress=print)


async def test_one_made_afresh_is_beside_its_elder_which_may_be_in_use(
    environments: EnvironmentCache, run: HostRun, wheels: Path
) -> None:
    first = await environments.ready(GREETING, run=run, on_progress=print)
    second = await environments.ready(GREETING, run=run, on_progress=print, rebuild=True)
    assert first.python != second.python
    assert python_output(first.python, "import greeting; print(greeting.WORDS)") == "hello"
    assert await environments.ready(GREETING, run=run, on_progress=print) == second
