"""A run with races is its journal: interrupted or replayed, it is the same run, and nothing is paid for twice."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gepa_client import Interrupted, RemoteAdapter
from gepa_client.journal.entries import RACE, SEARCH, STOP
from gepa_client.journal.history import entries
from tests.gepa_client.endpoint_fixtures import token
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import cut_after, discovery_of, recording, replaying, watched
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.selection.raced_run import TRAIN, Program, RacedRun, run
from tests.support.rounds import rounds

__all__ = ["token"]

SETTINGS: dict[str, Any] = {"proposals": "2x2", "max_metric_calls": 350}


def undisturbed(host: Host, **more: Any) -> RacedRun:
    with RemoteAdapter(Program(lures=TRAIN).serve(host)) as adapter:
        found = run(adapter, **SETTINGS | more)
    assert found.lost
    assert len(found.candidates) > 2
    return found


@pytest.mark.parametrize("seed", rounds(15))
def test_a_run_that_is_cut_at_random_ends_as_an_undisturbed_one(host: Host, tmp_path: Path, seed: int) -> None:
    wanted = undisturbed(host)
    program, chance, cuts = Program(lures=TRAIN), random.Random(seed), 0
    url = program.serve(host)
    with watched(tmp_path) as store:
        while True:
            with recording(store) as journal, RemoteAdapter(url, journal=journal) as adapter:
                cut_after(journal, chance.randint(3, 40))
                try:
                    found = run(adapter, **SETTINGS)
                except Interrupted as interrupted:
                    assert interrupted.reason == "cut"
                    cuts += 1
                    continue
            break
        assert cuts > 5
        assert found == wanted
        kinds = Counter(made.kind for made in store.attempts(RUN.id, SEARCH) if made.outcome not in ("lost", "refused"))
        assert kinds["evaluate"] == sum(program.server.runs.values()) == wanted.metric_calls
        with RemoteAdapter(journal=replaying(store), recorded=discovery_of(url)) as adapter:
            assert run(adapter, **SETTINGS) == wanted


def test_a_limit_that_ends_a_run_within_a_race_is_replayed_and_resumed(host: Host, tmp_path: Path) -> None:
    wanted = undisturbed(host)
    url = Program(lures=TRAIN).serve(host)
    with watched(tmp_path) as store:
        with recording(store) as journal, RemoteAdapter(url, journal=journal) as adapter:
            journal.spending.watch(_cut_in_a_race(store, journal))
            with pytest.raises(Interrupted) as spent:
                run(adapter, **SETTINGS)
            journal.stop(spent.value)
        with (
            RemoteAdapter(journal=replaying(store), recorded=discovery_of(url)) as adapter,
            pytest.raises(Interrupted, match=spent.value.reason),
        ):
            run(adapter, **SETTINGS)
        store.drop(RUN.id, SEARCH, STOP)
        with recording(store) as journal, RemoteAdapter(url, journal=journal) as adapter:
            assert run(adapter, **SETTINGS) == wanted


def _cut_in_a_race(store: Any, journal: Any) -> Any:
    def cut() -> None:
        if any(entry.kind == RACE for entry in entries(store, RUN.id, SEARCH)):
            journal.cancel_token.cancel(Interrupted("paused", "cut"))

    return cut
