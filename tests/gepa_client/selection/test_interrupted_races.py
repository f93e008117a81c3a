"""A run with races is its journal: interrupted or replayed, it is the same run, and nothing is paid for twice."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gepa_client import RemoteAdapter
from gepa_client.journal.entries import SEARCH
from tests.gepa_client.endpoint_fixtures import token
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import cut_at_random, discovery_of, replaying, watched
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.selection.raced_run import TRAIN, Program, run
from tests.support.rounds import rounds

__all__ = ["token"]

SETTINGS: dict[str, Any] = {"proposals": "2x2", "max_metric_calls": 350}


@pytest.mark.parametrize("seed", rounds(15))
def test_a_run_that_is_cut_at_random_ends_as_an_undisturbed_one(host: Host, tmp_path: Path, seed: int) -> None:
    with RemoteAdapter(Program(lures=TRAIN).serve(host)) as adapter:
        wanted = run(adapter, **SETTINGS)
    assert wanted.lost
    assert len(wanted.candidates) > 2
    program = Program(lures=TRAIN)
    url = program.serve(host)
    with watched(tmp_path) as store:
        found, cuts = cut_at_random(store, url, seed, lambda adapter: run(adapter, **SETTINGS))
        assert cuts > 5
        assert found == wanted
        kinds = Counter(made.kind for made in store.attempts(RUN.id, SEARCH) if made.outcome not in ("lost", "refused"))
        assert kinds["evaluate"] == sum(program.server.runs.values()) == wanted.metric_calls
        with RemoteAdapter(journal=replaying(store), recorded=discovery_of(url)) as adapter:
            assert run(adapter, **SETTINGS) == wanted
