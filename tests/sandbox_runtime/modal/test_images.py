"""Images: published once for each recipe, found by name, and never built during a start."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from evolverpc_common.node_package_managers import NodeInstall
from evolverpc_common.python_package_managers import PythonInstall
from sandbox_runtime import Command, EnvironmentMissing, Recipe
from sandbox_runtime.backends import image_setup
from sandbox_runtime.backends.image_setup import install, name_of, read_recipe, write_recipe
from sandbox_runtime.runtime import Runtime
from tests.sandbox_runtime.modal.serving_sandbox import spec
from tests.support.modal_cloud import Cloud

RECIPE = Recipe(python=">=3.11", node="20", packages=("idna",))


async def test_an_unpublished_recipe_is_an_error_with_the_command_that_publishes_it(
    cloud: Cloud, runtime: Runtime
) -> None:
    with pytest.raises(EnvironmentMissing, match="evolverpc sandboxes --publish"):
        await runtime.prepare(RECIPE, on_progress=lambda _: None)
    assert cloud.count("ImageGetOrCreate") == 0


async def test_start_builds_nothing(cloud: Cloud, runtime: Runtime) -> None:
    with pytest.raises(EnvironmentMissing):
        await runtime.start(dataclasses.replace(spec(cloud), prepared=image_setup.prepared(RECIPE, "im-gone")))
    asked = spec(cloud)
    with pytest.raises(EnvironmentMissing):
        await runtime.start(dataclasses.replace(asked, prepared=dataclasses.replace(asked.prepared, image=None)))
    assert cloud.count("ImageGetOrCreate") == 0
    assert cloud.boxes == []


async def test_a_published_image_is_found_by_its_recipe_and_built_again_only_on_demand(
    cloud: Cloud, runtime: Runtime
) -> None:
    progress: list[str] = []
    made = await runtime.prepare(RECIPE, on_progress=progress.append, rebuild=True)
    built = cloud.count("ImageGetOrCreate")
    found = await runtime.prepare(RECIPE, on_progress=progress.append)
    assert found == made
    assert found.image in cloud.control.images
    assert cloud.count("ImageGetOrCreate") == built
    assert cloud.control.published == {name_of(RECIPE): found.image}
    assert any(name_of(RECIPE) in line for line in progress)
    forced = [asked.message.force_build for asked in cloud.asked if asked.method == "ImageGetOrCreate"]
    assert forced == [False] * (built - 1) + [True]
    has_our_own_code_the_recipe_and_what_installs_it(cloud)


def has_our_own_code_the_recipe_and_what_installs_it(cloud: Cloud) -> None:
    commands = [line for image in cloud.control.images.values() for line in image.dockerfile_commands]
    assert any("git" in line for line in commands if "apt-get install" in line)
    assert any("jsonrpcserver" in line and "uv pip install" in line for line in commands)
    assert commands[-1].endswith("-m sandbox_runtime.backends.image_setup /opt/recipe /opt/program")
    mounted = {file.filename for files in cloud.control.mounted.values() for file in files}
    site = f"{image_setup.SERVER}/lib/python{image_setup.SERVER_PYTHON_VERSION}/site-packages"
    assert {f"{site}/protocol/__init__.py", f"{site}/rpc_server/__main__.py"} <= mounted
    assert "/opt/recipe/recipe.json" in mounted
    assert not any("__pycache__" in name or "gepa_client" in name for name in mounted)


def test_a_recipe_is_read_with_the_input_of_its_checkout(tmp_path: Path) -> None:
    (tmp_path / "tar").write_bytes(b"\0")
    install = PythonInstall("app", ("uv", "sync"), "uv.lock", "1f")
    commands = (Command(("tar", "-x"), stdin=tmp_path / "tar"), Command(("git", "apply"), "program", b"\xff"))
    node = NodeInstall("", "app", None, ("ci",), "package-lock.json", "2f", ("yarn.lock",))
    recipe = Recipe(install=install, node_install=node, checkout=commands)
    write_recipe(recipe, tmp_path)
    found = read_recipe(tmp_path)
    assert found == recipe
    assert [(each.argv, each.cwd) for each in found.checkout] == [(("tar", "-x"), "."), (("git", "apply"), "program")]
    assert [each.stdin.read_bytes() for each in found.checkout if isinstance(each.stdin, Path)] == [b"\0", b"\xff"]


def test_a_recipe_is_installed_at_the_paths_of_the_prepared_environment(tmp_path: Path) -> None:
    recipe = Recipe(python=">=3.11")
    write_recipe(recipe, tmp_path)
    program = tmp_path / "program"
    asyncio.run(install(tmp_path, program))
    prepared = image_setup.prepared(recipe, "im-any")
    assert prepared.python == "/opt/program/venv/bin/python"
    assert (program / "venv" / "bin" / "python").exists()
    assert (program / "path" / "0").resolve() == (program / "venv" / "bin").resolve()
