"""Rows that the server holds have a digest, and one id each."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from evolverpc_common.row_files import RowFileError, read_rows
from protocol import Example
from protocol.errors import UnknownExample
from rpc_server.methods.dataset_rows import Datasets, check_carried


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_digest_depends_on_rows_and_not_on_formats(tmp_path: Path) -> None:
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


def test_a_row_has_one_id() -> None:
    splits = {"val": [{"q": 1}, {"q": 2}], "csv": [{"q": "3"}], "own": [{"q": 4}, {"q": 5}]}
    held = Datasets(splits, untyped={"csv"}, objects={"own"})
    filled = held.filled([Example(id=at, split=split) for at, split in (("1", "val"), ("0", "csv"), ("1", "own"))])
    assert [each.data for each in filled] == [{"q": 2}, {"q": "3"}, ["own", 1]]
    assert [each.untyped for each in filled] == [False, True, False]
    for wrong in ("01", "2", "-1", "one", "²"):
        with pytest.raises(UnknownExample):
            held.filled([Example(id=wrong, split="val")])


def test_rows_that_a_program_would_change_are_refused_by_their_place() -> None:
    splits = {"val": [{"n": 1}, {"n": {"$exact": ["integer", "9007199254740993"]}}]}
    check_carried(splits, SimpleNamespace(capabilities={"exact_values"}))
    with pytest.raises(RowFileError, match=r"datasets\.val: row 1: n is "):
        check_carried(splits, SimpleNamespace(capabilities={"scoring"}))
