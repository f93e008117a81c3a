"""Images of recipes: built and published once, found by name from then on."""

import asyncio
import hashlib
import importlib.metadata
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import modal

from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.backends.modal.image_setup import (
    PROGRAM,
    RECIPE,
    SERVER,
    SERVER_PYTHON,
    SERVER_PYTHON_VERSION,
    write_recipe,
)

PACKAGES = ("protocol", "rpc_server", "sandbox_runtime", "evolverpc_common")
"""Our packages in an image; `sandbox_runtime` installs its recipe."""

EXTRAS = ("server", "agent", "sandbox")
"""Our extras whose requirements an image has; the last one for uv, which installs the recipe."""

_OURS = Path(__file__).parents[3]


def name_of(recipe: Recipe) -> str:
    """Return the name of the recipe's image: it changes with the recipe and with each version of our code."""
    return f"evolverpc:{recipe.digest}-{_own_digest(PACKAGES, EXTRAS)}"


@dataclass(frozen=True)
class PackagesImage:
    """An image with packages of ours alone, and with what these of our extras require."""

    packages: tuple[str, ...]
    extras: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return its name: it changes with each version of the packages."""
        return f"evolverpc:{'-'.join(self.extras)}-{_own_digest(self.packages, self.extras)}"


def of_recipe(recipe: Recipe, folder: Path) -> modal.Image:
    """Describe the recipe's image; `folder`: an empty folder that is needed until it is built."""
    wanted = folder / "recipe"
    wanted.mkdir()
    write_recipe(recipe, wanted)
    return (
        of_packages(PackagesImage(PACKAGES, EXTRAS), folder)
        .add_local_dir(wanted, RECIPE, copy=True)
        .run_commands(
            f"{SERVER_PYTHON} -I -m sandbox_runtime.backends.modal.image_setup {RECIPE} {PROGRAM}", force_build=True
        )
    )


def of_packages(wanted: PackagesImage, folder: Path) -> modal.Image:
    """Describe the image of packages; `folder`: as for `of_recipe`."""
    ours = folder / "ours"
    for package in wanted.packages:
        shutil.copytree(_OURS / package, ours / package, ignore=shutil.ignore_patterns("__pycache__"))
    base = f"/usr/local/bin/python{SERVER_PYTHON_VERSION}"
    site = f"{SERVER}/lib/python{SERVER_PYTHON_VERSION}/site-packages"
    return (
        modal.Image.debian_slim(python_version=SERVER_PYTHON_VERSION)
        .apt_install("git", "ca-certificates")
        .pip_install("uv")
        .run_commands(f"uv venv --python {base} {SERVER}")
        .run_commands(f"uv pip install --python {SERVER_PYTHON} {shlex.join(requirements(wanted.extras))}")
        .add_local_dir(ours, site, copy=True)
    )


async def build(name: str, described: Callable[[Path], modal.Image], app: modal.App, client: modal.Client) -> str:
    """Build and publish an image, which `described` describes with an empty folder; return its id.

    Raises Modal's own errors.
    """
    with tempfile.TemporaryDirectory() as folder:
        image = await asyncio.to_thread(described, Path(folder))
        await image.build.aio(app)
        await image.publish.aio(name, client=client)
        return image.object_id


async def find(name: str, app: modal.App, client: modal.Client) -> str:
    """Return the id of a published image. Raises Modal's `NotFoundError` if there is none."""
    image = modal.Image.from_name(name, client=client)
    await image.build.aio(app)  # of an image that has a name this looks it up, and builds nothing
    return image.object_id


def requirements(extras: Sequence[str]) -> list[str]:
    """Return what our packages in an image need, as pip accepts it. Raises `RuntimeUnavailable` if unknown.

    `extras`: of ours, whose requirements are among them.
    """
    try:
        required = importlib.metadata.requires("evolverpc") or ()
    except importlib.metadata.PackageNotFoundError:
        raise RuntimeUnavailable(
            "what an image needs is known where evolverpc is installed: pip install -e '.[modal]'"
        ) from None
    found: dict[str, None] = {}
    for text in required:
        requirement, _, condition = (part.strip() for part in text.partition(";"))
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
        if (extra is None or extra[1] in extras) and not requirement.startswith("evolverpc"):
            found[requirement] = None
    return list(found)


@cache
def _own_digest(packages: tuple[str, ...], extras: tuple[str, ...]) -> str:
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
