"""Proposals that lose on validation rows are dropped before all rows are paid for; the others enter the pool whole."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from evolverpc_common.settings.sources import SettingsError
from gepa_client import RemoteAdapter
from gepa_client.selection import race
from gepa_client.selection.race_rule import AHEAD, LEAST_BLOCK, DropDecision, targets
from protocol import Example
from tests.gepa_client.endpoint_fixtures import token
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.selection.raced_run import TRAIN, VAL, Program, RacedRun, run

__all__ = ["token"]


def raced(host: Host, program: Program, **settings: Any) -> RacedRun:
    with RemoteAdapter(program.serve(host)) as adapter:
        return run(adapter, **settings)


def test_a_losing_proposal_is_dropped_and_every_call_is_counted_once(host: Host) -> None:
    program = Program(lures=TRAIN)
    found = raced(host, program)
    assert found.lost
    assert len(found.candidates) > 2
    assert all(len(scores) == VAL for scores in found.scores)
    assert all(race["compared"] <= race["calls"] < VAL and race["rows"] == VAL for race in found.lost)
    assert found.metric_calls == len(program.server.called("evaluate"))
    ran: dict[str, set[str]] = defaultdict(set)
    for call in program.server.called("evaluate"):
        if int(call["batch"][0]["id"]) >= TRAIN:
            ran[call["candidate"]["rules"]].add(call["batch"][0]["id"])
    first, second, *_ = (rows for rows in ran.values() if len(rows) < VAL)
    assert first - second, "each race has an order of its own"
    assert second - first


def test_no_race_compares_with_a_candidate_that_a_user_dropped(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[list[Mapping[int, float]]] = []
    monkeypatch.setattr(race, "targets", lambda pool, parent: pools.append(list(pool)) or targets(pool, parent))
    found = raced(host, Program(lures=TRAIN), dropped={1})
    assert len(found.candidates) > 2
    assert found.scores[0] in pools[-1]
    assert not any(found.scores[1] in pool for pool in pools)


def test_a_run_whose_proposals_never_lose_is_that_of_full_validation(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"frontier_type": "hybrid", "proposals": "2x2", "use_merge": True}
    monkeypatch.setattr(race, "drop_decision", lambda *_: DropDecision(False, 0.0, 0.0))
    full, races = (raced(host, Program(), validation=validation, **settings) for validation in ("full", "race"))
    assert len(races.candidates) > 2
    assert races.in_full() == full.in_full()


def test_an_example_that_takes_long_holds_up_no_other_slot(host: Host) -> None:
    slots = 4
    program = Program(slots=slots)
    begun: Counter[str] = Counter()
    waiting: dict[str, asyncio.Event] = {}

    async def evaluated(candidate: dict[str, str], example: Example, traced: bool) -> dict[str, Any]:
        if int(example.id) >= TRAIN and candidate["rules"] != program.seed:
            begun[candidate["rules"]] += 1
            enough = waiting.setdefault(candidate["rules"], asyncio.Event())
            if begun[candidate["rules"]] == 1:  # it ends when as many others were begun as a fleet has ahead
                await asyncio.wait_for(enough.wait(), 20)
            elif begun[candidate["rules"]] == AHEAD * slots + LEAST_BLOCK:
                enough.set()
        return program.evaluated(candidate, example, traced)

    url = program.serve(host)
    program.server.evaluate_one = evaluated
    with RemoteAdapter(url) as adapter:
        found = run(adapter, max_metric_calls=200)
    assert len(found.candidates) > 1


def test_a_row_of_a_text_that_lost_is_not_paid_for_again_if_scores_are_cached(host: Host) -> None:
    program = Program(lures=TRAIN)
    found = raced(host, program, cache_evaluation=True, seed=1)
    assert len(found.lost) > 1
    ran = Counter(
        (call["candidate"]["rules"], call["batch"][0]["id"])
        for call in program.server.called("evaluate")
        if int(call["batch"][0]["id"]) >= TRAIN
    )
    assert set(ran.values()) == {1}
    assert all(lost["calls"] + lost["saved"] <= lost["rows"] for lost in found.lost)
    assert any(lost["calls"] + lost["saved"] < lost["rows"] for lost in found.lost), "some of its rows were known"
    assert found.metric_calls == len(program.server.called("evaluate"))


def test_a_program_of_whole_batches_is_refused(host: Host) -> None:
    with pytest.raises(SettingsError, match="evaluates whole batches"):
        raced(host, Program(whole_batches=True))
