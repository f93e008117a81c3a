"""A run written to one file, and taken in by another store."""

import json
from pathlib import Path

from tests.gepa_client.conftest import Cli
from tests.gepa_client.stored_run import Made, put


def test_an_export_goes_to_stdout_or_a_new_file_and_never_over_another(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "runs" / "evolverpc.db", Made(texts=("", "\x1b[31m", "\U000e0041", "blue", "x")))
    printed = cli("export", "last", "--output", "-")
    assert printed.status == 0, printed.stderr
    assert not {"\x1b", "\U000e0041"} & set(printed.stdout)
    answer = json.loads(cli("export", "last", "--output", "mine.json", "--json").stdout)
    assert answer["file"] == "mine.json"
    assert json.loads((tmp_path / "mine.json").read_text()) == json.loads(printed.stdout)
    assert (tmp_path / "mine.json").stat().st_mode & 0o777 == 0o600
    over = cli("export", "last", "--output", "mine.json")
    assert over.status == 2
    assert "mine.json is there already" in over.stderr
    nowhere = cli("export", "last", "--output", "no/such/folder.json")
    assert nowhere.status == 2
    assert "cannot be written" in nowhere.stderr
