"""Images of Modal or Docker: what is where in them, what they are made from, and the program that installs a recipe.

`python -I -m sandbox_runtime.backends.image_setup RECIPE_FOLDER PROGRAM_FOLDER` installs it while the image is built.
"""

import asyncio
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from pydantic import TypeAdapter

from evolverpc_common.build_cache import FILES, BuiltEnvironment
from sandbox_runtime.api.sandbox import RuntimeUnavailable, SandboxError
from sandbox_runtime.api.spec import PreparedEnvironment, Recipe
from sandbox_runtime.backends.process_commands import run_build
from sandbox_runtime.environments.build_folder import trusting
from sandbox_runtime.environments.cache import EnvironmentCache
from sandbox_runtime.environments.node import NPM_VARIABLES
from sandbox_runtime.environments.python import wants_python

WORKSPACE = "/workspace"
"""The folder of a sandbox in which all commands start."""

PORT = 8080
"""The port of the server; at Modal only connect tokens reach it."""

SERVER = "/opt/evolverpc"
"""The environment of our own packages."""

SERVER_PYTHON_VERSION = "3.12"
"""The same for every publisher, so that every starter finds the image."""

SERVER_PYTHON = f"{SERVER}/bin/python"

PROGRAM = "/opt/program"
"""Links to what a recipe installed, so that their paths are known without asking the image."""

PATHS = 4
"""How many folders of `PATH` a recipe can have: one of Python, one of Node, and two of its packages."""

RECIPE = "/opt/recipe"
"""The folder of the recipe itself, for the installation."""

GATEWAY_VARIABLES = "EVOLVERPC_GATEWAY_VARIABLES"
"""A variable of the installation: a JSON object with variables of build commands, whose token is no secret to them."""

PACKAGES = ("protocol", "rpc_server", "sandbox_runtime", "evolverpc_common")
"""Our packages that a server needs; in an image, `sandbox_runtime` installs its recipe too."""

EXTRAS = ("server", "agent", "sandbox")
"""Our extras whose requirements an image has; the last one for uv, which installs the recipe."""

_OURS = Path(__file__).parents[2]

_RECIPE = TypeAdapter(Recipe)


def prepared(recipe: Recipe, image: str) -> PreparedEnvironment:
    """Return the recipe's environment as it is in its published image."""
    env = {}
    if wants_python(recipe):
        env["VIRTUAL_ENV"] = f"{PROGRAM}/venv"
    if recipe.node_install is not None:
        env["NODE_PATH"] = f"{PROGRAM}/{FILES}/{recipe.node_install.modules[-1]}"
        env |= NPM_VARIABLES
    return PreparedEnvironment(
        recipe=recipe,
        server=(SERVER_PYTHON, "-I", "-m", "rpc_server"),
        python=f"{PROGRAM}/venv/bin/python" if wants_python(recipe) else None,
        path=tuple(f"{PROGRAM}/path/{number}" for number in range(PATHS)),
        image=image,
        env=env,
    )


def name_of(recipe: Recipe) -> str:
    """Return the name of the recipe's image: it changes with the recipe and with each version of our code."""
    return f"evolverpc:{recipe.digest}-{own_digest(PACKAGES, EXTRAS)}"


def copy_packages(packages: Sequence[str], folder: Path) -> None:
    """Copy these packages of ours into a folder that is made. Blocks."""
    for package in packages:
        shutil.copytree(_OURS / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))


def requirements(extras: Sequence[str]) -> list[str]:
    """Return what our packages in an image need, as pip accepts it. Raises `RuntimeUnavailable` if unknown.

    `extras`: of ours, whose requirements are among them.
    """
    try:
        required = importlib.metadata.requires("evolverpc") or ()
    except importlib.metadata.PackageNotFoundError:
        raise RuntimeUnavailable(
            "what an image needs is known where evolverpc is installed: pip install -e '.[sandbox]'"
        ) from None
    found: dict[str, None] = {}
    for text in required:
        requirement, _, condition = (part.strip() for part in text.partition(";"))
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
        if (extra is None or extra[1] in extras) and not requirement.startswith("evolverpc"):
            found[requirement] = None
    return list(found)


@cache
def own_digest(packages: tuple[str, ...], extras: tuple[str, ...]) -> str:
    """Return a digest of all our code in an image."""
    hashed = hashlib.sha256("\n".join((*requirements(extras), SERVER_PYTHON_VERSION)).encode())
    for package in packages:
        for file in sorted((_OURS / package).rglob("*")):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            content = file.read_bytes()
            hashed.update(f"{file.relative_to(_OURS)} {len(content)}\n".encode())
            hashed.update(content)
    return hashed.hexdigest()[:12]


def write_recipe(recipe: Recipe, folder: Path) -> None:
    """Write a recipe as `install` reads it."""
    for number, command in enumerate(recipe.checkout):
        command.write_input(folder / f"input-{number}")
    (folder / "recipe.json").write_bytes(_RECIPE.dump_json(recipe, exclude={"checkout": {"__all__": {"stdin"}}}))


def read_recipe(folder: Path) -> Recipe:
    """Return what `write_recipe` wrote. Blocks."""
    recipe = _RECIPE.validate_json((folder / "recipe.json").read_bytes())
    checkout = (replace(command, stdin=folder / f"input-{n}") for n, command in enumerate(recipe.checkout))
    return replace(recipe, checkout=tuple(checkout))


async def run(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float, readable: Sequence[str]
) -> tuple[int, bytes]:
    """Run a build command without isolation, with the variables of the gateway: an image has a machine of its own."""
    command, variables = trusting(argv, {**env, **json.loads(os.environ.get(GATEWAY_VARIABLES, "{}"))})
    return await run_build(command, cwd, variables, timeout_s, readable)


def link(recipe: Recipe, built: BuiltEnvironment, program: Path) -> None:
    """Make the links that `PreparedEnvironment` names."""
    (program / "path").mkdir(parents=True, exist_ok=True)
    links = {f"path/{number}": folder for number, folder in enumerate(built.path[:PATHS])}
    if built.python is not None:
        links["venv"] = str(Path(built.python).parents[1])
    if recipe.node_install is not None:
        links[FILES] = built.env["NODE_PATH"].removesuffix(f"/{recipe.node_install.modules[-1]}")
    for name, target in links.items():
        (program / name).symlink_to(target)


async def install(recipe_folder: Path, program: Path) -> None:
    """Install the recipe of one folder into the other. Raises `SandboxError`."""
    environments = EnvironmentCache(program / "environments")
    recipe = read_recipe(recipe_folder)
    link(recipe, await environments.ready(recipe, run=run, on_progress=partial(print, flush=True)), program)


def main() -> None:
    """Install; end with the message of the tool that fails."""
    try:
        asyncio.run(install(Path(sys.argv[1]), Path(sys.argv[2])))
    except SandboxError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
