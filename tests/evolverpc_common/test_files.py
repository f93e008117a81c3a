"""Rows are read with the place of every error; files are replaced whole, removed, and opened if they are plain."""

import os
from pathlib import Path

import pytest

from evolverpc_common.files import NotPlainFile, open_plain, plain_files, remove_tree, replace_file
from evolverpc_common.row_files import RowFileError, read_rows
from protocol.base import is_nested_deeper

DEPTH = 1500


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.txt", b"", "rows are read from .jsonl, .json or .csv"),
        ("rows.json", b"{}", "not an array of rows"),
        ("rows.json", b"[1]", "row 0 is not a JSON object"),
        ("rows.json", b"[\n{]", "line 2: not JSON"),
        ("rows.jsonl", b'{"a": 1}\n[]', "line 2 is not a JSON object"),
        ("rows.jsonl", b'{"a": 1}\n\n{"a": 1e400}\n', "line 3: not JSON"),
        ("rows.csv", b"a,a\n1,2", "the header has repeated names"),
        ("rows.csv", b"text;label\nhi;a\n", "one column, 'text;label': is ';' the separator?"),
        ("rows.csv", b"a,b\n1", "line 2 has 1 values for 2 columns"),
        ("rows.csv", b"\xff", "not UTF-8 text (byte 0)"),
    ],
)
def test_an_unusable_file_is_named_with_the_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(RowFileError) as caught:
        read_rows(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_file_is_replaced_with_its_mode_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "token"
    (tmp_path / ".token.new").write_text("left by a process that was killed")
    replace_file(path, "old", mode=0o600)
    replace_file(path, "new \ud800", mode=0o600)
    assert path.read_text() == "new \\ud800"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["token"]


@pytest.mark.parametrize("innermost", [None, 2**70])
def test_levels_of_nesting_are_counted(innermost: object) -> None:
    value = innermost
    for _ in range(200):
        value = {"a": value, "b": [1]}
    assert not is_nested_deeper(value, 201)
    assert is_nested_deeper([[value]], 200)
    assert not is_nested_deeper(1, 0)


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
