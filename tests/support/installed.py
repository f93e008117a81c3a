"""Environments that tests install once, beside the packages of the environment they run in, and find again."""

import fcntl
import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

INSTALLED = Path(sys.prefix) / "test-environments"


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
