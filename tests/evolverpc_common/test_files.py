"""Rows are read with the place of every error; files are replaced whole."""

from pathlib import Path

import pytest

from evolverpc_common.files import replace_file
from evolverpc_common.rows import RowFileError, read_rows
from protocol.base import is_nested_deeper


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.txt", b"", "rows are read from .jsonl, .json or .csv"),
        ("rows.json", b"{}", "not an array of rows"),
        ("rows.json", b"[1]", "row 0 is not a JSON object"),
        ("rows.json", b"[\n{]", "line 2: not JSON"),
        ("rows.jsonl", b'{"a": 1}\n[]', "line 2 is not a JSON object"),
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
