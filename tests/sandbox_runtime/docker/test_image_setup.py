"""The installation of a recipe while an image is built. No daemon is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_runtime import Recipe
from sandbox_runtime.backends.image_setup import GATEWAY_VARIABLES, run, write_recipe
from sandbox_runtime.environments.build_folder import BuildFolder

PROXY = "http://sandbox:token@127.0.0.1:8182"


async def test_the_token_of_the_gateway_does_not_keep_packages_from_being_built_from_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.setenv(GATEWAY_VARIABLES, json.dumps({"HTTPS_PROXY": PROXY}))
    folder = BuildFolder(tmp_path, run, print)
    folder.make()
    assert folder.may_build
    assert f"HTTPS_PROXY={PROXY}\n" in await folder.run(("env",), readable=())


def test_an_installation_that_fails_ends_with_the_reason_and_no_traceback(tmp_path: Path) -> None:
    write_recipe(Recipe(python="newest"), tmp_path)
    module = "sandbox_runtime.backends.image_setup"
    install = (sys.executable, "-m", module, str(tmp_path), str(tmp_path / "program"))
    done = subprocess.run(install, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("'newest' is not a version of Python")
    assert "Traceback" not in done.stderr
