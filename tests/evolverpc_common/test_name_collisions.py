"""A user's module with the name of one of our packages is named, with what to do about it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, path: Path | None = None) -> "subprocess.CompletedProcess[str]":
    folders = [str(path)] if path is not None else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, str(ROOT)])}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_protocol_module_beside_a_script_is_named_at_the_import(tmp_path: Path) -> None:
    script, own = tmp_path / "script.py", tmp_path / "protocol.py"
    script.write_text("from gepa_client import RemoteAdapter\nprint(RemoteAdapter.__name__)\n")
    own.write_text("VERSION = 'mine'\n")
    done = run(str(script))
    assert done.returncode == 1
    assert f"ImportError: {own} would be imported in place of the package `protocol`" in done.stderr
    assert "rename it, or move it out of the folder of the script" in done.stderr
    own.rename(tmp_path / "my_protocol.py")
    assert run(str(script)).stdout == "RemoteAdapter\n"


def console_script(folder: Path, command: str) -> str:
    """Return the path of a script as an installer writes it."""
    script = folder / "bin" / command.replace("_", "-")
    script.parent.mkdir()
    script.write_text(f"import sys\nfrom evolverpc_common.console_scripts import {command}\nsys.exit({command}())\n")
    return str(script)


@pytest.mark.parametrize(("command", "name"), [("gepa_server", "rpc_server.py"), ("evolverpc", "protocol/__init__.py")])
def test_a_module_on_pythonpath_is_named_by_the_commands(tmp_path: Path, command: str, name: str) -> None:
    folder = tmp_path / "own"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("raise SystemExit('the wrong module was imported')\n")
    done = run(console_script(tmp_path, command), "--help", path=folder)
    assert done.returncode == 2
    assert done.stderr.startswith(f"evolverpc: {folder / Path(name).parts[0]} would be imported")
    assert f"remove {folder} from PYTHONPATH" in done.stderr
