"""Folders of fleet files: private, gone after their use, and swept where their owner could not remove them."""

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_runtime.backends.records import SandboxRecords, owned_folders
from sandbox_runtime.endpoints_file import SESSIONS, EndpointsFile, sweep_endpoints_folders

DIES = """
import os
from sandbox_runtime.backends.records import owned_folders
with owned_folders("sessions"):
    os._exit(9)
"""


@pytest.fixture
def records(tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch) -> SandboxRecords:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    return SandboxRecords(SESSIONS)


def test_one_is_private_and_goes_with_its_block(records: SandboxRecords, short: Path) -> None:
    with owned_folders(SESSIONS) as folders:
        EndpointsFile(folders.sockets)
        assert folders.sockets.stat().st_mode & 0o777 == 0o700
        sweep_endpoints_folders()
        assert (folders.sockets / "fleet").is_file()
    assert records.all() == []
    assert list((short / "evolverpc").iterdir()) == []


def test_one_whose_owner_is_gone_is_swept_unless_others_may_write_there(
    records: SandboxRecords, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-c", DIES], check=False, timeout=60)
    [left] = [record.sockets for record in records.all()]
    kept = tmp_path / "evolverpc" / "sandboxes" / SESSIONS
    kept.chmod(0o777)
    sweep_endpoints_folders()
    assert left.is_dir()
    kept.chmod(0o700)
    sweep_endpoints_folders()
    assert records.all() == []
