"""A command whose packages are not installed names the pip command, not a module."""

import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def python_without(folder: Path, absent: tuple[str, ...]) -> Path:
    """An environment with this project and every package of this one, but those whose files begin so."""
    venv.create(folder, symlinks=True)
    [site] = (folder / "lib").glob("python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith((*absent, "evolverpc", "_editable", "__")) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    (site / "project.pth").write_text(f"{ROOT}\n")
    return folder / "bin" / "python"


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
    python = python_without(tmp_path / "environment", absent)
    ended = subprocess.run(
        [python, "-c", run, "--version"], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
    )
    assert ended.returncode != 0
    last = ended.stderr.strip().splitlines()[-1]
    assert f"packages are not installed ({', '.join(absent)}): run pip install '.[{extra}]'" in last
    assert "Traceback" not in ended.stderr
