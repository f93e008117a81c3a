"""TypeScript examples of one file compile."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.installed import installed
from tests.support.pnpm_workspace import needs_npm_registry

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "typescript"
PACKAGE = ROOT / "clients" / "typescript"

pytestmark = [
    needs_npm_registry,
    pytest.mark.skipif(not (PACKAGE / "dist" / "index.js").is_file(), reason="the package has not been built"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples, with their packages."""
    lock = (EXAMPLES / "package-lock.json").read_text()
    packages = installed("typescript-examples", lock, install) / "examples" / "typescript" / "node_modules"
    copy = tmp_path / "typescript"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("node_modules"))
    (copy / "node_modules").symlink_to(packages)
    return copy


def install(folder: Path) -> None:
    """The packages of the examples, by npm; `clients` is where their lock has it."""
    place = folder / "examples" / "typescript"
    place.mkdir(parents=True)
    (folder / "clients").symlink_to(PACKAGE.parent)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(EXAMPLES / name, place)
    flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefer-offline")
    subprocess.run(["npm", "ci", *flags], cwd=place, check=True, timeout=300)


def test_the_examples_compile_strictly(folder: Path) -> None:
    compiler = [folder / "node_modules" / ".bin" / "tsc", "-p", "."]
    done = subprocess.run(compiler, cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")
