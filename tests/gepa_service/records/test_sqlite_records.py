"""Records in SQLite: places of no database; the rest is tested with the store of runs."""

from pathlib import Path

import pytest

from gepa_service.records import RecordError, open_records


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    content = b"no database at all" * 100
    path.write_bytes(content)
    with pytest.raises(RecordError):
        open_records(str(path))
    assert path.read_bytes() == content


@pytest.mark.parametrize("place", ["file/below.db", "folder"])
def test_a_place_where_no_file_can_be_is_an_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(RecordError):
        open_records(str(tmp_path / place))
