"""Images of recipes: built and published once, found by name from then on."""

import asyncio
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import modal

from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.backends.image_setup import (
    PROGRAM,
    RECIPE,
    SERVER,
    SERVER_PYTHON,
    SERVER_PYTHON_VERSION,
    write_recipe,
)
from sandbox_runtime.backends.own_packages import EXTRAS, PACKAGES, copy_packages, own_digest, requirements


@dataclass(frozen=True)
class PackagesImage:
    """An image with packages of ours alone, and with what these of our extras require."""

    packages: tuple[str, ...]
    extras: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return its name: it changes with each version of the packages."""
        return f"evolverpc:{'-'.join(self.extras)}-{own_digest(self.packages, self.extras)}"


def of_recipe(recipe: Recipe, folder: Path) -> modal.Image:
    """Describe the recipe's image; `folder`: an empty folder that is needed until it is built."""
    wanted = folder / "recipe"
    wanted.mkdir()
    write_recipe(recipe, wanted)
    return (
        of_packages(PackagesImage(PACKAGES, EXTRAS), folder)
        .add_local_dir(wanted, RECIPE, copy=True)
        .run_commands(
            f"{SERVER_PYTHON} -I -m sandbox_runtime.backends.image_setup {RECIPE} {PROGRAM}", force_build=True
        )
    )


def of_packages(wanted: PackagesImage, folder: Path) -> modal.Image:
    """Describe the image of packages; `folder`: as for `of_recipe`."""
    ours = folder / "ours"
    copy_packages(wanted.packages, ours)
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
