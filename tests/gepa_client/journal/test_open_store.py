"""Which store a command uses, and which run a few letters mean."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gepa_client.errors import JournalError, NoSuchRun
from gepa_client.journal.store import Store, default_store, find_run, open_store
from tests.gepa_client.journal.sample_runs import run


def test_the_store_given_comes_before_the_environments_before_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEPA_STORE", raising=False)
    assert default_store() == "runs/evolverpc.db"
    monkeypatch.setenv("GEPA_STORE", "there.db")
    assert default_store(None) == "there.db"
    assert default_store("here.db") == "here.db"


@pytest.mark.parametrize("url", ["postgres://h/d", "sqlite:///x", ""])
def test_what_is_no_store_is_refused_and_nothing_is_made(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JournalError, match="path for SQLite or a mongodb:// URL"):
        open_store(url)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Store]:
    """Three runs, two of one name."""
    with closing(open_store(str(tmp_path / "store.db"))) as store:
        for day, run_id, name in ((1, "20260101-1", "words"), (2, "20260102-1", "words"), (3, "20260103-1", "intents")):
            store.create(run(run_id, name=name, created=f"2026-01-{day:02}"))
        yield store


@pytest.mark.parametrize(
    ("text", "found"),
    [("20260102-1", "20260102-1"), ("intents", "20260103-1"), ("TENT", "20260103-1"), ("last", "20260103-1")],
)
def test_a_run_is_found_by_any_part_of_its_id_or_name_or_as_the_last(runs: Store, text: str, found: str) -> None:
    assert find_run(runs, text).id == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("202601", "may be any of 20260103-1, 20260102-1, 20260101-1"),
        ("words", "may be any of 20260102-1, 20260101-1"),
        ("5-1", "holds no run '5-1'; it has 20260103-1"),
        ("", "holds no run ''"),
    ],
)
def test_a_run_that_is_not_the_only_one_meant_is_an_error_with_candidates(runs: Store, text: str, message: str) -> None:
    with pytest.raises(NoSuchRun, match=message):
        find_run(runs, text)
