"""Runs and rows as the tests of journals need them."""

from dataclasses import replace
from typing import Any

from gepa_client.journal.entries import SEARCH, Attempt, CandidateRecord, Entry, SteeringRequest, StoredRun
from gepa_client.journal.store import Store

OWNER = "owner-1"
DRIVER = "pid 1 on here"
RUN = StoredRun(
    id="20260101-120000-abcd-words",
    name="words",
    config={"z": 1, "a": {"dotted.name": [1, 2.5, None], "$money": "é"}},
    counters={"iteration": 0},
    output="runs/words",
    parent={"run": "other", "at": 3},
    created="2026-01-01T12:00:00.000+00:00",
    updated="2026-01-01T12:00:00.000+00:00",
)
REQUEST = SteeringRequest(
    id="z",
    action={"kind": "hint", "text": "caf\u00e9 \ud800 \0"},
    author="ann@desk",
    created="2026-01-01T00:00:00.000+00:00",
)
KEPT = CandidateRecord(
    index=0,
    texts={"b.c": "text", "$a": "\x00 é \U0001f600"},
    parents=[],
    iteration=0,
    number=4,
    score=0.5,
    scores={"1": 1.0, "0": 0.0},
    metric_calls=2,
    objective_scores={"speed": 0.25},
    found="2026-01-01T12:00:01.000+00:00",
    cost_usd=0.25,
)


def run(run_id: str = RUN.id, **changes: Any) -> StoredRun:
    return replace(RUN, id=run_id, **changes)


def entry(number: int, answer: bytes = b'{"b":1,"a":2.0}', **changes: Any) -> Entry:
    return replace(Entry(SEARCH, number, "evaluate", f"{number:064x}", f"evaluate row {number}", answer), **changes)


def sent(number: int, attempt: int = 1, **changes: Any) -> Attempt:
    return replace(Attempt(SEARCH, number, attempt, "evaluate", "http://127.0.0.1:1", "instance"), **changes)


def ended(number: int, attempt: int = 1, outcome: str = "ok", **changes: Any) -> Attempt:
    return replace(sent(number, attempt), outcome=outcome, **changes)


def driven(store: Store, run_id: str = RUN.id, owner: str = OWNER) -> StoredRun:
    """A run that `owner` drives."""
    store.create(run(run_id))
    assert store.claim(run_id, store.run(run_id).claim, owner, DRIVER)
    return store.run(run_id)
