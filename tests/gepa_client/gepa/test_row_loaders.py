import pytest

from gepa_client import Row, RowsError, load_rows


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.json", '[{"a": "1", "b": "x\u2028y"}, {"a": "2", "b": ""}]'),
        ("r.jsonl", '{"a": "1", "b": "x\u2028y"}\n\n{"a": "2", "b": ""}\n'),
        ("r.csv", "a,b\n1,x\u2028y\n2,\n"),
        ("r.CSV", "\ufeffa,b\r\n1,x\u2028y\r\n\r\n2,\r\n"),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path, name, text):
    (tmp_path / name).write_bytes(text.encode())
    untyped = name.lower().endswith(".csv")
    first, second = {"a": "1", "b": "x\u2028y"}, {"a": "2", "b": ""}
    assert load_rows(tmp_path / name) == [Row("0", first, untyped=untyped), Row("1", second, untyped=untyped)]


def test_a_csv_value_may_hold_line_breaks(tmp_path):
    (tmp_path / "r.csv").write_text('a,b\n"two\nlines",1\n', encoding="utf-8")
    assert load_rows(str(tmp_path / "r.csv")) == [Row("0", {"a": "two\nlines", "b": "1"}, untyped=True)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.txt", b"x", "json"),
        ("r.json", b"{}", "array"),
        ("r.json", b"[1]", "row 0"),
        ("r.json", b"[", "r.json"),
        ("r.json", b"[]", "no rows"),
        ("r.json", b'[{"a": NaN}]', "r.json"),
        ("r.json", b"\xff", "r.json"),
        ("r.jsonl", b'{"a": 1}\n{"a": \n', "line 2"),
        ("r.jsonl", b'{"a": 1}\n[1]\n', "line 2"),
        ("r.csv", b"a,b\n1\n", "line 2"),
        ("r.csv", b"a,a\n1,2\n", "header"),
        ("r.csv", b'a,b\n1,"open\n', "r.csv"),
        ("r.csv", b"", "no rows"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RowsError, match=message):
        load_rows(tmp_path / name)
