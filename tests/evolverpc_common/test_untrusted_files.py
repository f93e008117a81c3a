"""Below a folder that others write, plain files are opened and nothing else."""

import os
from pathlib import Path

import pytest

from evolverpc_common.files import NotPlainFile, open_plain, plain_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one plain file, and with everything by which its owner might lead a reader elsewhere."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("private")
    folder = tmp_path / "theirs"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "plain").write_text("theirs")
    (folder / "link").symlink_to(tmp_path / "private" / "key")
    (folder / "linked").symlink_to(tmp_path / "private")
    (folder / "again").hardlink_to(tmp_path / "private" / "key")
    (folder / "device").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.mark.parametrize(
    "name",
    [
        *("link", "linked/key", "again", "device", "pipe", "below", ".", "below/plain/x"),
        *("../private/key", "below/../../private/key", "/etc/passwd"),
    ],
)
def test_what_is_no_plain_file_is_not_opened(folder: Path, name: str) -> None:
    with pytest.raises(NotPlainFile):
        open_plain(folder, name)


def test_plain_files_are_opened_and_found(folder: Path) -> None:
    with open_plain(folder, "below/plain") as file:
        assert file.read() == b"theirs"
    with pytest.raises(FileNotFoundError):
        open_plain(folder, "below/absent")
    assert [(str(name), file.read()) for name, file in plain_files(folder)] == [("below/plain", b"theirs")]
    assert list(plain_files(folder / "linked")) == []


def test_folders_in_each_other_are_looked_into_to_a_bounded_depth(tmp_path: Path) -> None:
    deepest = Path(*["d"] * 66)
    (tmp_path / deepest).mkdir(parents=True)
    for depth in (64, 65, 66):
        (tmp_path / Path(*["d"] * depth) / "file").write_text("x")
    assert [len(name.parts) for name, _ in plain_files(tmp_path)] == [65]
