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


async def test_a_build_in_a_container_trusts_the_gateway_besides_the_certificates_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GATEWAY_VARIABLES, json.dumps({"HTTPS_PROXY": PROXY, "GATEWAY_AUTHORITY": "OURS"}))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    (tmp_path / "company.pem").write_text("THEIRS")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(tmp_path / "company.pem"))
    folder = BuildFolder(tmp_path / "build", run, print)
    folder.make()
    printed = await folder.run(("sh", "-c", "echo $HTTPS_PROXY; cat $NODE_EXTRA_CA_CERTS; exit"), readable=())
    assert printed.startswith(f"{PROXY}\n-----BEGIN") and printed.endswith("\nTHEIRS\nOURS\n")


def test_an_installation_that_fails_ends_with_the_reason_and_no_traceback(tmp_path: Path) -> None:
    write_recipe(Recipe(python="newest"), tmp_path)
    module = "sandbox_runtime.backends.image_setup"
    install = (sys.executable, "-m", module, str(tmp_path), str(tmp_path / "program"))
    done = subprocess.run(install, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("'newest' is not a version of Python")
    assert "Traceback" not in done.stderr
