"""What `make demo` prints while it sets up, with stand-ins for Python and npm: the real ones need an index."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNREACHABLE = "ERROR: Could not find a version that satisfies the requirement hatchling>=1.27"
NO_REGISTRY = "npm error code ECONNREFUSED"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As much of a clone as the set-up reads, whose `.venv` has been made."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "clients" / "typescript").mkdir(parents=True)
    shutil.copytree(
        ROOT / "examples" / "tickets" / "typescript",
        tmp_path / "examples" / "tickets" / "typescript",
        ignore=shutil.ignore_patterns("node_modules", "dist"),
    )
    return tmp_path


def stand_in(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def make(clone: Path, target: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{clone / 'bin'}:{os.environ['PATH']}"}
    environment.pop("MAKEFLAGS", None)
    environment.pop("MAKELEVEL", None)
    command = ["make", "--old-file=.venv/bin/python", target]
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=60)


def test_a_failed_installation_shows_what_pip_states(clone: Path) -> None:
    stand_in(clone / ".venv/bin/python", 'case "$*" in *--editable*)', f"echo '{UNREACHABLE}' >&2; exit 1;; esac")
    stand_in(clone / ".venv/bin/uv", "echo 'error: Request failed' >&2; exit 2")
    done = make(clone, ".venv/.installed")
    assert done.returncode != 0
    assert UNREACHABLE in done.stderr
    assert not (clone / ".venv" / ".installed").exists()


def test_a_failed_installation_of_the_typescript_compiler_shows_what_npm_states(clone: Path) -> None:
    stand_in(clone / "bin/node", "exit 0")
    stand_in(clone / "bin/npm", "echo 'added 0 packages'", f"echo '{NO_REGISTRY}' >&2; exit 1")
    done = make(clone, "demo-typescript")
    assert done.returncode == 0, "the demo runs in Python alone"
    assert NO_REGISTRY in done.stderr
    assert "added 0 packages" not in done.stdout
