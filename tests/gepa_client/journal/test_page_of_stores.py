"""The page of a run is the same whichever store keeps the run."""

from pathlib import Path

import pytest

from tests.gepa_client.page.page_state import read_run
from tests.gepa_client.stored_run import RUN_ID, Made, put

KINDS = ("rows", "candidate", "reflection", "spending", "failures", "finished")


@pytest.mark.parametrize("store_url", ["mongo", pytest.param("http", marks=pytest.mark.long)], indirect=True)
def test_the_page_receives_the_same_facts_from_any_store(store_url: str, tmp_path: Path) -> None:
    made = Made(broken=frozenset({(1, 2)}))
    other = str(tmp_path / "other.db")
    put(store_url, made)
    put(other, made)
    page, same = read_run(store_url, RUN_ID, replays=False), read_run(other, RUN_ID, replays=False)
    assert {kind: page.of(kind) for kind in KINDS} == {kind: same.of(kind) for kind in KINDS}
    assert len(page.of("candidate")) == 5
