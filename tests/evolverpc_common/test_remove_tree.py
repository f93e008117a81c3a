"""Folders of programs are removed despite odd permissions."""

import os
from pathlib import Path

from evolverpc_common.files import remove_tree

DEPTH = 1500


def deep(folder: Path) -> None:
    """`DEPTH` folders in one another, each with a file and no permissions."""
    made = []
    here = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.mkdir("d" * 20, dir_fd=here)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        made.append(here)
        here = inner
        if len(made) > 1:
            os.fchmod(made[-1], 0)
            os.close(made[-2])
    os.close(made[-1])
    os.close(here)


def test_a_folder_is_removed_however_deep_and_closed_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    deep(folder)
    remove_tree(folder)
    assert not folder.exists()


def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(0o750)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "folder")
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o750
