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


def checkout(folder: Path, last: str) -> Path:
    """Return a folder with the installed GEPA, whose import ends with `last`."""
    installed = Path(gepa.__file__).parent
    package = folder / "src" / "gepa"
    package.mkdir(parents=True)
    for each in installed.iterdir():
        if each.name not in ("__init__.py", "__pycache__"):
            (package / each.name).symlink_to(each)
    (package / "__init__.py").write_text((installed / "__init__.py").read_text(encoding="utf-8") + last)
    return folder


@pytest.mark.long
def test_the_tests_run_with_the_gepa_of_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/with_gepa.py", str(checkout(tmp_path, DIFFERENT)), *ONE_TEST]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (found.returncode, "positional arguments but" in found.stdout) == (1, True), found.stdout + found.stderr
