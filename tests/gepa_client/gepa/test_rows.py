import pytest

from gepa_client import Row, load_rows


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
