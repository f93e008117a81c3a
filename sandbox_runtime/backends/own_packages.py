"""Our own packages in an image of Modal or Docker, with what they require."""

import hashlib
import importlib.metadata
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.backends.image_setup import SERVER_PYTHON_VERSION

PACKAGES = ("protocol", "rpc_server", "sandbox_runtime", "evolverpc_common")
"""Our packages in an image; `sandbox_runtime` installs its recipe."""

EXTRAS = ("server", "agent", "sandbox")
"""Our extras whose requirements an image has; the last one for uv, which installs the recipe."""

_OURS = Path(__file__).parents[2]


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
