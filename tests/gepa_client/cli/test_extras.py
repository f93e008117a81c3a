"""A command whose packages are not installed names the pip command, not a module."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("run", "absent", "extra"),
    [
        ("from gepa_client.cli import main; main()", ("typer",), "client"),
        ("from rpc_server.cli import main; main()", ("git", "jsonrpcserver", "platformdirs"), "server"),
    ],
)
def test_what_is_not_installed_is_named_with_the_pip_command(
    tmp_path: Path, run: str, absent: tuple[str, ...], extra: str
) -> None:
    without = f"import sys; sys.modules.update(dict.fromkeys({absent}))"  # as if they were not there
    command = [sys.executable, "-I", "-c", f"{without}; {run}", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert ended.returncode != 0
    last = ended.stderr.strip().splitlines()[-1]
    assert f"packages are not installed ({', '.join(absent)}): run pip install '.[{extra}]'" in last
    assert "Traceback" not in ended.stderr
