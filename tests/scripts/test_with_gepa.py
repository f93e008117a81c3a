"""`scripts/with_gepa.py` runs tests with the GEPA of a folder, and with no other."""

import subprocess
import sys
from pathlib import Path

import gepa
import pytest

ROOT = Path(__file__).parents[2]
ONE_TEST = ("-n", "0", "-k", "test_open_proposals_of_an_iteration_share_a_batch", "-p", "no:cacheprovider")

DIFFERENT = """
from gepa.core.state import EvaluationCache
EvaluationCache.put_batch = lambda self, candidate, *, changed: None
"""


def with_gepa(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/with_gepa.py", str(folder), *ONE_TEST]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def checkout(folder: Path, first: str) -> Path:
    """Return a folder with the installed GEPA, whose import runs `first`."""
    installed = Path(gepa.__file__).parent
    package = folder / "src" / "gepa"
    package.mkdir(parents=True)
    for each in installed.iterdir():
        if each.name not in ("__init__.py", "__pycache__"):
            (package / each.name).symlink_to(each)
    (package / "__init__.py").write_text((installed / "__init__.py").read_text(encoding="utf-8") + first)
    return folder


@pytest.mark.long
def test_a_folder_without_gepa_is_refused_by_its_name(tmp_path: Path) -> None:
    found = with_gepa(tmp_path)
    assert (found.returncode, f"no GEPA in {tmp_path / 'src'}" in found.stderr) == (2, True), found.stderr
    found = with_gepa(checkout(tmp_path, "raise ImportError('broken')"))
    assert (found.returncode, "broken" in found.stderr) == (2, True), found.stderr


@pytest.mark.long
def test_the_tests_run_with_the_gepa_of_the_folder(tmp_path: Path) -> None:
    found = with_gepa(checkout(tmp_path, DIFFERENT))
    assert (found.returncode, "positional arguments but" in found.stdout) == (1, True), found.stdout + found.stderr
