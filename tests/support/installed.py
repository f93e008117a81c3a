"""Environments that tests install once, beside the packages of the environment they run in, and find again."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

INSTALLED = Path(sys.prefix) / "test-environments"
_LIKE_PIP = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_FIND_LINKS": "UV_FIND_LINKS", "PIP_CERT": "SSL_CERT_FILE"}
"""Variables of pip, which uv does not read, and the variables of uv with the same meaning."""


def installed(name: str, wanted: str, install: Callable[[Path], None]) -> Path:
    """The folder of an environment that is made again when `wanted`, what it should hold, changes."""
    INSTALLED.mkdir(exist_ok=True)
    folder, stamp, digest = INSTALLED / name, INSTALLED / f"{name}.lock", hashlib.sha256(wanted.encode()).hexdigest()
    with stamp.open("a+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.seek(0)
        if held.read() != digest:
            shutil.rmtree(folder, ignore_errors=True)
            install(folder)
            held.truncate(0)
            held.write(digest)
    return folder


def python_with(name: str, requirements: Path) -> Path:
    """The interpreter of an environment with what a file of requirements lists, installed by uv."""

    def install(folder: Path) -> None:
        uv = Path(sys.executable).with_name("uv")
        env = {uv: os.environ[pip] for pip, uv in _LIKE_PIP.items() if pip in os.environ} | os.environ
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True, timeout=60, env=env)
        target = ["--python", folder / "bin" / "python", "--requirement", requirements]
        subprocess.run([uv, "pip", "install", "--quiet", *target], check=True, timeout=900, env=env)

    return installed(name, requirements.read_text(), install) / "bin" / "python"


def node_with(name: str, project: Path, *packages: str) -> Path:
    """A copy of a folder with `package-lock.json`, with what that lists, or these packages of it, installed by npm."""
    wanted = json.loads((project / "package.json").read_text())
    chosen = {each: wanted["dependencies"][each] for each in packages or wanted["dependencies"]}

    def install(folder: Path) -> None:
        shutil.copytree(project, folder)
        (folder / "package.json").write_text(json.dumps(wanted | {"dependencies": chosen}))
        omitted = ["--omit=optional", "--omit=peer", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        command = ["npm", "install" if packages else "ci", *omitted]
        subprocess.run(command, cwd=folder, check=True, timeout=500, stdout=subprocess.DEVNULL)

    return installed(name, json.dumps(chosen) + (project / "package-lock.json").read_text(), install)
