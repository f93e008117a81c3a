from pathlib import Path

import pytest

from sandbox_runtime import RuntimeUnavailable
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.backends.bubblewrap.prerequisites import bubblewrap


def program(folder: Path, script: str) -> None:
    file = folder / "bwrap"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


async def test_without_bubblewrap_the_error_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeUnavailable, match="apt install bubblewrap"):
        await BubblewrapBackend().__aenter__()


def test_a_bubblewrap_that_cannot_create_namespaces_is_refused_with_its_own_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path, "echo 'No permissions to create' >&2; exit 1")
    with pytest.raises(RuntimeUnavailable, match="No permissions to create"):
        bubblewrap(None)
