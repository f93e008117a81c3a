"""Runs while an image is built: installs its recipe and links it to where `places` says it is.

`python -I -m sandbox_runtime.backends.modal.install RECIPE_FOLDER PROGRAM_FOLDER`
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox_runtime.api.recipe import Recipe
from sandbox_runtime.backends.modal.places import PATHS
from sandbox_runtime.environments import Built, Environments


def write_recipe(recipe: Recipe, folder: Path) -> None:
    """As `read_recipe` reads it."""
    told = {"python": recipe.python, "node": recipe.node, "packages": recipe.packages}
    (folder / "recipe.json").write_text(json.dumps(told), encoding="utf-8")
    for name, content in recipe.files.items():
        file = folder / "files" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def read_recipe(folder: Path) -> Recipe:
    """The one that was written there."""
    told = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    files = folder / "files"
    manifests = {str(file.relative_to(files)): file.read_bytes() for file in files.rglob("*") if file.is_file()}
    return Recipe(told["python"], told["node"], manifests, tuple(told["packages"]))


async def run(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    readable: Sequence[str],  # noqa: ARG001  all of an image is
) -> tuple[int, bytes]:
    """A `Run` that needs no walls: an image is built in a machine of its own."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env=dict(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    status = process.returncode
    assert status is not None, "it was waited for"  # noqa: S101
    return (status if status >= 0 else 128 - status), output


def link(built: Built, program: Path) -> None:
    """Make the links, and those alone, that `Prepared` names."""
    (program / "path").mkdir(parents=True, exist_ok=True)
    links = {f"path/{number}": folder for number, folder in enumerate(built.path[:PATHS])}
    if built.python is not None:
        links["venv"] = str(Path(built.python).parents[1])
    if "NODE_PATH" in built.env:
        links["node_modules"] = built.env["NODE_PATH"]
    for name, target in links.items():
        (program / name).symlink_to(target)


async def install(recipe_folder: Path, program: Path) -> None:
    """Have the recipe in that folder ready in the other. Raises `NotPrepared`."""
    environments = Environments(program / "environments")
    link(await environments.ready(read_recipe(recipe_folder), run=run, told=print), program)


if __name__ == "__main__":
    asyncio.run(install(Path(sys.argv[1]), Path(sys.argv[2])))
