"""Rows from files: every format alike, every fault by file and line."""

from pathlib import Path

import pytest

from rpc_server.datasets.datasets import DatasetError, Datasets, read_rows


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '[{"q": "1", "a": "x"}, {"q": "2", "a": "y"}]'),
        ("a.jsonl", '{"q": "1", "a": "x"}\n\n{"q": "2", "a": "y"}'),
        ("a.jsonl", '\ufeff{"q": "1", "a": "x"}\r\n{"q": "2", "a": "y"}\r\n'),
        ("a.csv", "q,a\n1,x\n2,y\n"),
        ("A.CSV", '\ufeffq,a\r\n1,x\r\n\r\n"2",y'),
    ],
)
def test_the_same_rows_are_read_from_every_format(tmp_path: Path, name: str, text: str) -> None:
    assert read_rows(written(tmp_path, name, text)) == [{"q": "1", "a": "x"}, {"q": "2", "a": "y"}]


def test_line_separators_inside_strings_do_not_end_a_row(tmp_path: Path) -> None:
    assert read_rows(written(tmp_path, "a.jsonl", '{"q": "a\u2028b\x85c"}')) == [{"q": "a\u2028b\x85c"}]
    assert read_rows(written(tmp_path, "a.csv", 'q,a\n"two\nlines",x')) == [{"q": "two\nlines", "a": "x"}]


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("a.json", '[{"q": 1},\n{"q": }]', "a.json, line 2"),
        ("a.json", '{"q": 1}', "a.json"),
        ("a.json", '[{"q": 1}, 5]', "a.json, row 1"),
        ("a.jsonl", '{"q": 1}\n{"q": NaN}', "a.jsonl, line 2"),
        ("a.jsonl", '{"q": 1}\n\n[1]', "a.jsonl, line 3"),
        ("a.csv", "q,a\n1,2\n1,2,3", "a.csv, line 3"),
        ("a.csv", "q,a\n1", "a.csv, line 2"),
        ("a.csv", "q,q\n1,2", "a.csv, line 1"),
        ("a.csv", 'q\n"1', "a.csv, line 2"),
        ("a.jsonl", "", "a.jsonl"),
        ("a.json", "[]", "a.json"),
        ("a.csv", "q,a\n", "a.csv"),
        ("a.jsonl", b'{"q": "\xff"}', "a.jsonl"),
        ("a.txt", "x", "a.txt"),
    ],
)
def test_a_fault_is_told_by_file_and_line(tmp_path: Path, name: str, text: str | bytes, where: str) -> None:
    with pytest.raises(DatasetError) as caught:
        read_rows(written(tmp_path, name, text))
    assert f"{tmp_path}/{where}:" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"none\.csv"):
        read_rows(tmp_path / "none.csv")


def test_the_digest_tells_rows_apart_and_not_formats(tmp_path: Path) -> None:
    files = {
        "same": written(tmp_path, "a.csv", "q,a\n1,x\n2,y"),
        "as": written(tmp_path, "a.jsonl", '{"a": "x", "q": "1"}\n{"q": "2", "a": "y"}'),
        "other": written(tmp_path, "b.csv", "q,a\n1,x\n2,z"),
        "reordered": written(tmp_path, "c.csv", "q,a\n2,y\n1,x"),
    }
    held = Datasets({split: read_rows(path) for split, path in files.items()})
    digests = {split: info.digest for split, info in held.infos.items()}
    assert digests["same"] == digests["as"]
    assert len(set(digests.values())) == 3
