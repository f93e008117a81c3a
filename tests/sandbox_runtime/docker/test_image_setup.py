"""The installation of a recipe while an image is built. No daemon is needed."""

import subprocess
import sys
from pathlib import Path

from sandbox_runtime import Recipe
from sandbox_runtime.backends.image_setup import write_recipe

PROXY = "http://sandbox:token@127.0.0.1:8182"


def test_an_installation_that_fails_ends_with_the_reason_and_no_traceback(tmp_path: Path) -> None:
    write_recipe(Recipe(python="newest"), tmp_path)
    module = "sandbox_runtime.backends.image_setup"
    install = (sys.executable, "-m", module, str(tmp_path), str(tmp_path / "program"))
    done = subprocess.run(install, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("'newest' is not a version of Python")
    assert "Traceback" not in done.stderr
