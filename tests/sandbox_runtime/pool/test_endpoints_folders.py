"""Folders of fleet files: private, gone after their use, and swept where their owner could not remove them."""

import subprocess
import sys
from pathlib import Path

from sandbox_runtime.backends.records import SandboxRecords
from sandbox_runtime.endpoints_file import EndpointsFile, endpoints_folder, sweep_endpoints_folders

DIES = """
import os, sys
from pathlib import Path
from sandbox_runtime.backends.records import SandboxRecords
from sandbox_runtime.endpoints_file import endpoints_folder
with endpoints_folder(SandboxRecords("sessions", state=Path(sys.argv[1]), sockets=Path(sys.argv[2]))):
    os._exit(9)
"""


def test_one_is_private_and_goes_with_its_block(tmp_path: Path, short: Path) -> None:
    records = SandboxRecords("sessions", state=tmp_path, sockets=short)
    with endpoints_folder(records) as folder:
        EndpointsFile(folder)
        assert folder.stat().st_mode & 0o777 == 0o700
        sweep_endpoints_folders(records)
        assert (folder / "fleet").is_file()
    assert records.all() == []
    assert list(short.iterdir()) == []


def test_one_whose_owner_is_gone_is_swept_unless_others_may_write_there(tmp_path: Path, short: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path), str(short)], check=False, timeout=60)
    records = SandboxRecords("sessions", state=tmp_path, sockets=short)
    [left] = [record.sockets for record in records.all()]
    (tmp_path / "sandboxes" / "sessions").chmod(0o777)
    sweep_endpoints_folders(records)
    assert left.is_dir()
    (tmp_path / "sandboxes" / "sessions").chmod(0o700)
    with endpoints_folder(records) as folder:
        sweep_endpoints_folders(records)
        assert [record.sockets for record in records.all()] == [folder]
