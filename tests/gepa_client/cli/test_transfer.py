"""A run written to one file, and taken in by another store."""

import json
from pathlib import Path

import pytest

from gepa_client.run.transfer import MACHINE_SETTINGS
from tests.gepa_client.conftest import Cli
from tests.gepa_client.stored_run import IDENTITY, RUN_ID, Made, put


def test_a_run_that_is_exported_and_imported_is_the_same(cli: Cli, tmp_path: Path) -> None:
    made = Made(name="first", texts=("", "red\u202e", "a", "blue", "\U000e0041"), identity=IDENTITY)
    put(tmp_path / "runs" / "evolverpc.db", made)
    ended = cli("export", "first")
    assert ended.status == 0, ended.stderr
    file = tmp_path / f"{RUN_ID}.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert f"next, elsewhere: gepa-client import {RUN_ID}.json" in ended.stdout
    taken = cli("import", file, "--store", "other.db")
    assert taken.status == 0, taken.stderr
    assert f"next: gepa-client show {RUN_ID} --store other.db" in taken.stdout
    here, there = cli("show", "first", "--json"), cli("show", "last", "--json", "--store", "other.db")
    was, now = json.loads(here.stdout), json.loads(there.stdout)
    kept = {key: value for key, value in was["config"].items() if key not in MACHINE_SETTINGS}
    assert {**was, "config": kept, "updated": ""} == {**now, "updated": ""}
    again = cli("import", file, "--store", "other.db")
    assert again.status == 2
    assert RUN_ID in again.stderr


def test_an_export_goes_to_stdout_or_a_new_file_and_never_over_another(cli: Cli, tmp_path: Path) -> None:
    put(tmp_path / "runs" / "evolverpc.db", Made(texts=("", "\x1b[31m", "\U000e0041", "blue", "x")))
    printed = cli("export", "last", "--output", "-")
    assert printed.status == 0, printed.stderr
    assert not {"\x1b", "\U000e0041"} & set(printed.stdout)
    answer = json.loads(cli("export", "last", "--output", "mine.json", "--json").stdout)
    assert answer["file"] == "mine.json"
    assert json.loads((tmp_path / "mine.json").read_text()) == json.loads(printed.stdout)
    over = cli("export", "last", "--output", "mine.json")
    assert over.status == 2
    assert "mine.json is there already" in over.stderr
    nowhere = cli("export", "last", "--output", "no/such/folder.json")
    assert nowhere.status == 2
    assert "cannot be written" in nowhere.stderr


@pytest.mark.parametrize("text", ["", '{"format": "else"}'])
def test_a_file_that_is_no_run_is_refused_and_leaves_no_run(cli: Cli, tmp_path: Path, text: str) -> None:
    (tmp_path / "file.json").write_text(text)
    ended = cli("import", "file.json")
    assert ended.status == 2
    assert len(ended.stderr.splitlines()) == 1
    assert cli("runs", "--json").stdout == ""
    assert "absent.json: no such file in /" in cli("import", "absent.json").stderr
