"""The errors if docker cannot be used. No daemon is needed."""

import shutil
import socket
from pathlib import Path

import pytest

from sandbox_runtime import RuntimeUnavailable
from sandbox_runtime.backends import open_runtime

OLD = """#!/bin/sh
case "$1" in
version) echo '{"Version": "19.03", "ApiVersion": "1.40"}';;
*) echo '{"OSType": "linux"}';;
esac
"""
REFUSED = """#!/bin/sh
echo "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock" >&2
exit 1
"""


def put(folder: Path, script: str | None, patch: pytest.MonkeyPatch) -> None:
    """Make this script the only `docker`, or none."""
    if script is not None:
        (folder / "docker").write_text(script)
        (folder / "docker").chmod(0o755)
    patch.setenv("PATH", f"{folder}:/nowhere")


@pytest.mark.parametrize(
    ("script", "message"),
    [(None, "not on PATH: install Docker"), (OLD, "19.03: Docker 20.10 or later"), (REFUSED, "group `docker`")],
)
async def test_docker_that_cannot_be_used_is_an_error_that_states_what_to_do(
    script: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, script, monkeypatch)
    with pytest.raises(RuntimeUnavailable, match=message):
        await open_runtime("docker").__aenter__()


async def test_a_daemon_that_cannot_be_reached_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        host = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(RuntimeUnavailable, match=f"DOCKER_HOST={host} cannot be reached"):
        await open_runtime("docker").__aenter__()
