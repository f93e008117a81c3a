"""A program whose environment needs a package that kills its installer at the first try."""

from pathlib import Path

from tests.sandbox_runtime.source.repositories import commit

KILLED_ONCE = """
import os, pathlib, signal, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    killed = pathlib.Path(KILLED)
    if not killed.exists():
        killed.touch()
        os.kill(os.getppid(), signal.SIGKILL)
    with zipfile.ZipFile(os.path.join(folder, "late-1.0-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("late-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: late\\nVersion: 1.0\\n")
        wheel.writestr("late-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("late-1.0.dist-info/RECORD", "")
    return "late-1.0-py3-none-any.whl"
"""
"""A build backend whose first build kills the installer."""

LATE_PROJECT = """
[project]
name = "late"
version = "1.0"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def kills_its_installer_once(repo: Path) -> Path:
    """Make the program of a repository need the package; return the file that is there once it has killed."""
    package, killed = repo.with_name("late"), repo.with_name("killed")
    package.mkdir()
    (package / "pyproject.toml").write_text(LATE_PROJECT)
    (package / "backend.py").write_text(KILLED_ONCE.replace("KILLED", repr(str(killed))))
    commit(repo, {"requirements.txt": f"late @ {package.as_uri()}\n"})
    return killed
