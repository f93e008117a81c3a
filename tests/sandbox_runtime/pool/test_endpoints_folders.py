"""Folders of fleet files: private, gone after their use, and swept where their owner could not remove them."""

import subprocess
import sys
from pathlib import Path

from sandbox_runtime.pool import EndpointsFile, endpoints_folder, sweep_endpoints_folders

DIES = """
import os, sys
from pathlib import Path
from sandbox_runtime.pool import endpoints_folder
with endpoints_folder(Path(sys.argv[1])):
    os._exit(9)
"""


def test_one_is_private_and_goes_with_its_block(tmp_path: Path) -> None:
    with endpoints_folder(tmp_path) as folder:
        EndpointsFile(folder)
        assert folder.stat().st_mode & 0o777 == 0o700
        sweep_endpoints_folders(tmp_path)
        assert (folder / "fleet").is_file()
    assert list((tmp_path / "fleets").iterdir()) == []


def test_one_whose_owner_is_gone_is_swept(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False, timeout=60)
    assert len(list((tmp_path / "fleets").iterdir())) == 1
    with endpoints_folder(tmp_path) as folder:
        sweep_endpoints_folders(tmp_path)
        assert list((tmp_path / "fleets").iterdir()) == [folder]


def test_nothing_is_swept_through_a_link_or_where_others_may_write(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path / "theirs")], check=False, timeout=60)
    [theirs] = (tmp_path / "theirs" / "fleets").iterdir()
    (tmp_path / "linked").mkdir(mode=0o700)
    (tmp_path / "linked" / "fleets").symlink_to(tmp_path / "theirs" / "fleets")
    sweep_endpoints_folders(tmp_path / "linked")
    assert theirs.is_dir()
    (tmp_path / "theirs").chmod(0o777)
    sweep_endpoints_folders(tmp_path / "theirs")
    assert theirs.is_dir()
