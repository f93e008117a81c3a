"""What every store does: one suite, each kind of store."""

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import orjson
import pytest

from gepa_client.errors import ClaimLost, NoSuchRun, NumberTaken, RequestExists, RunExists
from gepa_client.journal.entries import EVENTS, SEARCH, Claim, Row, Spending, SteeringRequest, now
from gepa_client.journal.history import all_rows
from gepa_client.journal.store import Store
from tests.gepa_client.journal.conftest import DATABASES, EVERY
from tests.gepa_client.journal.sample_runs import DRIVER, KEPT, OWNER, REQUEST, RUN, driven, ended, entry, run, sent
from tests.gepa_client.stored_run import decisions

WAIT_S = 30.0


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_a_run_comes_back_as_it_was_given_and_none_takes_its_place(store: Store, another: Callable[[], Store]) -> None:
    store.create(RUN)
    with pytest.raises(RunExists, match=RUN.id):
        store.create(run(status="paused"), [entry(0)])
    assert store.entries(RUN.id, SEARCH) == []
    for reader in (store, another()):
        assert reader.run(RUN.id) == RUN
        assert list(reader.run(RUN.id).config) == ["z", "a"], "keys keep their order"


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.run("x"),
        lambda store: store.update("x", {"status": "paused"}),
        lambda store: store.claim("x", Claim(None, 0), OWNER, DRIVER),
        lambda store: store.beat("x", OWNER, {}),
        lambda store: store.release("x", OWNER),
        lambda store: store.write("x", OWNER, [entry(0)]),
        lambda store: store.entries("x", SEARCH),
        lambda store: store.parts("x"),
        lambda store: store.drop("x", SEARCH, "stop"),
        lambda store: store.attempts("x", SEARCH),
        lambda store: store.candidates("x"),
        lambda store: store.add_request("x", REQUEST),
        lambda store: store.answer_request("x", "r", "taken"),
        lambda store: list(all_rows(store, "x")),
    ],
)
def test_an_unknown_run_id_is_an_error(store: Store, act: Callable[[Store], object]) -> None:
    with pytest.raises(NoSuchRun, match="x"):
        act(store)


@pytest.mark.parametrize("store_url", DATABASES, indirect=True)
def test_runs_are_listed_with_the_last_one_first(store: Store, store_url: str) -> None:
    store.create(run("b", created="2026-01-02T00:00:00+00:00"))
    store.create(run("a", created="2026-01-01T00:00:00+00:00"))
    store.create(run("c", created="2026-01-02T00:00:00+00:00"))
    assert [found.id for found in store.runs()] == ["c", "b", "a"]
    assert store.url == store_url, "it opens again by it"


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_run_has_a_completed_time_exactly_while_it_has_ended(store: Store, status: str) -> None:
    store.create(RUN)
    store.update(RUN.id, {"status": "running", "started": "2026-01-01T12:00:01.000+00:00"})
    assert (store.run(RUN.id).started, store.run(RUN.id).completed) == ("2026-01-01T12:00:01.000+00:00", None)
    store.update(RUN.id, {"status": status})
    ended_at = store.run(RUN.id).completed
    assert ended_at == store.run(RUN.id).updated
    store.update(RUN.id, {"counters": {}})
    assert store.run(RUN.id).completed == ended_at
    store.update(RUN.id, {"status": "running"})
    assert store.run(RUN.id).completed is None
    store.update(RUN.id, {"status": status, "completed": ended_at})
    assert store.run(RUN.id).completed == ended_at, "a resume that was refused leaves the time as it was"
    store.update(RUN.id, {"status": "paused"})
    assert (store.run(RUN.id).started, store.run(RUN.id).completed) == ("2026-01-01T12:00:01.000+00:00", None)


def test_settings_come_back_exactly(store: Store) -> None:
    given = {
        "keys": {"a.b": {"$c": {"%json": "%2E"}}, "": "", "\x00": 1},
        "numbers": [2**31, 2**53 + 1, 2**63 - 1, 2**64, -(2**70), True, 1.0, 0.1, -0.0, 1e300],
        "text": "lone \udcff surrogate",
        "empty": [[], {}, None, [{"deep": [None]}]],
    }
    store.create(run(config=given))
    store.update(RUN.id, {"best": given})
    for found in (store.run(RUN.id).config, store.run(RUN.id).best):
        assert json.dumps(found) == json.dumps(given)


@pytest.mark.parametrize("field", ["id", "claim", "owner", "colour"])
def test_a_field_that_cannot_be_replaced_is_refused(store: Store, field: str) -> None:
    store.create(RUN)
    with pytest.raises(ValueError, match=field):
        store.update(RUN.id, {field: "x"})


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_only_the_driver_may_change_what_is_the_drivers(store: Store) -> None:
    driven(store)
    store.update(RUN.id, {"status": "running"}, owner=OWNER)
    acts: list[Callable[[], object]] = [
        lambda: store.update(RUN.id, {"status": "failed"}, owner="another"),
        lambda: store.beat(RUN.id, "another", {"status": "failed"}),
        lambda: store.write(RUN.id, "another", [entry(0)]),
        lambda: store.write(RUN.id, "", [entry(0)]),
    ]
    for act in acts:
        with pytest.raises(ClaimLost, match=DRIVER):
            act()
    assert store.run(RUN.id).status == "running"
    assert store.entries(RUN.id, SEARCH) == []


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_a_claim_is_taken_only_as_it_was_seen_and_never_returns(store: Store) -> None:
    store.create(RUN)
    seen = store.run(RUN.id).claim
    assert store.claim(RUN.id, seen, OWNER, DRIVER)
    assert not store.claim(RUN.id, seen, "another", "pid 2"), "it was seen free"
    seen = store.run(RUN.id).claim
    assert (seen.owner, store.run(RUN.id).driver) == (OWNER, DRIVER)
    store.beat(RUN.id, OWNER, {})
    assert not store.claim(RUN.id, seen, "another", "pid 2"), "its driver lives"
    assert store.claim(RUN.id, store.run(RUN.id).claim, "another", "pid 2")
    seen = store.run(RUN.id).claim
    store.release(RUN.id, OWNER)
    assert store.run(RUN.id).claim == seen
    store.release(RUN.id, "another")
    free = store.run(RUN.id)
    assert (free.claim.owner, free.driver) == (None, None)
    assert free.claim.beat > seen.beat


def test_of_many_who_claim_at_once_one_gets_the_run(store: Store, another: Callable[[], Store]) -> None:
    store.create(RUN)
    seen = store.run(RUN.id).claim
    stores = [another() for _ in range(4)]
    ready = threading.Barrier(8)

    def claim(index: int) -> bool:
        ready.wait(WAIT_S)
        return stores[index % 4].claim(RUN.id, seen, f"owner {index}", f"pid {index}")

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(claim, range(8)))
    assert sum(got) == 1
    assert store.run(RUN.id).claim.owner == f"owner {got.index(True)}"


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_a_heartbeat_writes_changes_and_takes_what_stops_the_run(store: Store) -> None:
    claim = driven(store).claim
    assert store.beat(RUN.id, OWNER, {"counters": {"iteration": 7}}) is None
    for kind in ("unpin", "cancel"):
        store.add_request(RUN.id, SteeringRequest(kind, {"kind": kind}, "ada@desk", now()))
    assert store.beat(RUN.id, OWNER, {}) == "cancel"
    found = store.run(RUN.id)
    assert found.counters == {"iteration": 7}
    assert found.claim == Claim(OWNER, claim.beat + 2)


def test_answers_come_back_byte_by_byte_also_of_requests_that_utf_8_cannot_encode(store: Store) -> None:
    driven(store)
    just_too_long, long = b'"' + b"x" * 4095 + b'"', b'"' + b"long and the same " * 10_000 + b'"'
    answers = [b'{"z": 1,\n "a": 1.50, "a": "\xc3\xa9"}', b"", just_too_long, long]
    store.write(RUN.id, OWNER, [entry(number, answer, about="row \udcff\x00") for number, answer in enumerate(answers)])
    found = store.entries(RUN.id, SEARCH)
    assert found == [entry(number, answer, about="row \\udcff\x00") for number, answer in enumerate(answers)]


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_entries_are_read_in_order_part_by_part_and_page_by_page(store: Store) -> None:
    driven(store)
    store.create(run("other"))
    store.write("other", "", [entry(3, b"0")])
    numbers = [*range(0, 20, 2), *range(19, 0, -2)]
    store.write(RUN.id, OWNER, [entry(number) for number in numbers] + [entry(0, b"1", part="start")])
    assert store.entries(RUN.id, SEARCH) == [entry(number) for number in range(20)]
    assert store.entries(RUN.id, SEARCH, 7, 3) == [entry(7), entry(8), entry(9)]
    assert store.entries(RUN.id, SEARCH, 20) == []
    assert store.entries(RUN.id, SEARCH, 0, 0) == []
    assert store.entries(RUN.id, "start") == [entry(0, b"1", part="start")]
    assert store.parts(RUN.id) == {SEARCH: 20, "start": 1}


BATCH: list[Row] = [sent(0), sent(1), ended(1), entry(0), entry(1)]


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_a_write_may_be_repeated_by_who_wrote_it_and_replaced_by_none(store: Store) -> None:
    driven(store)
    store.write(RUN.id, OWNER, BATCH[:4])
    before = store.spending(RUN.id)
    store.write(RUN.id, OWNER, BATCH[:4])
    assert store.spending(RUN.id) == before
    store.write(RUN.id, OWNER, BATCH)
    different: list[Row] = [entry(1, b"3"), sent(1, endpoint="http://127.0.0.1:2")]
    for row in different:
        with pytest.raises(NumberTaken, match="1"):
            store.write(RUN.id, OWNER, [row])
    assert store.claim(RUN.id, store.run(RUN.id).claim, "another", "pid 2")
    for row in (different[0], sent(1)):
        with pytest.raises(NumberTaken, match="1"):
            store.write(RUN.id, "another", [row])
    assert store.entries(RUN.id, SEARCH) == [entry(0), entry(1)]


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_another_driver_ends_what_the_dead_one_began(store: Store) -> None:
    driven(store)
    store.write(RUN.id, OWNER, [sent(0), sent(0, 2, instance=None), sent(1)])
    assert store.claim(RUN.id, store.run(RUN.id).claim, "another", "pid 2")
    store.write(RUN.id, "another", [ended(0, 2, "lost"), sent(0, 3), ended(0, 3)])
    found = [(attempt.number, attempt.attempt, attempt.outcome) for attempt in store.attempts(RUN.id, SEARCH)]
    assert found == [(0, 1, None), (0, 2, "lost"), (0, 3, "ok"), (1, 1, None)]
    assert store.attempts(RUN.id, SEARCH)[1].instance is None
    assert [attempt.number for attempt in store.attempts(RUN.id, SEARCH, 1)] == [1]
    assert store.attempts(RUN.id, "start") == []


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_spending_adds_up_the_reported_usage(store: Store) -> None:
    driven(store)
    usage = {"cost_usd": 0.25, "input_tokens": 10, "output_tokens": 2, "calls": 1}
    many = int(float(f"{2**70:.14g}"))
    rows: list[Row] = [
        *(sent(number) for number in range(6)),
        sent(8, kind="completion"),
        sent(9, kind="score"),
        ended(0, seconds=0.5, usage=usage),
        ended(1, seconds=0.25, usage={**usage, "cost_usd": None, "input_tokens": 2**70}, examples=3, unpriced=3),
        ended(2, outcome="lost", seconds=None, usage=None, examples=0, unpriced=1),
        ended(4, outcome="timeout", seconds=None, usage=None, examples=3, unpriced=2),
        ended(5, outcome="timeout", seconds=None, usage={"calls": 1}, unpriced=1),
        ended(8, seconds=None, usage=None, unpriced=1),
        ended(9, usage={"cost_usd": 1, "input_tokens": "many"}),
    ]
    store.write(RUN.id, OWNER, rows)
    assert [(end.number, end.outcome) for end in store.finished_at(RUN.id, SEARCH, [3, 2, 9])] == [
        (2, "lost"),
        (9, "ok"),
    ]
    # A server may keep 15 digits of a number.
    found = [replace(spent, input_tokens=int(float(f"{spent.input_tokens:.14g}"))) for spent in store.spending(RUN.id)]
    assert found == [
        Spending("completion", "ok", 1, 1, 1, 0, 0, 0, 0, 0),
        Spending("evaluate", None, 1, 0, 0, 0, 0, 0, 0, 0),
        Spending("evaluate", "lost", 1, 0, 1, 0, 0, 0, 0, 0),
        Spending("evaluate", "ok", 2, 4, 3, 0, 0.25, many, 4, 0.75),
        Spending("evaluate", "timeout", 2, 4, 3, 2, 0, 0, 0, 0),
        Spending("score", "ok", 1, 1, 0, 0, 1.0, 0, 0, 0),
    ]


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_candidates_of_any_length_are_those_of_the_decisions_but_for_dropped_ones(store: Store) -> None:
    driven(store)
    noise = os.urandom(1_500_000).hex()  # more than a document of MongoDB holds inline, also compressed
    long = replace(KEPT, index=1, parents=[0], texts={"a": noise}, objective_scores=None)
    drop = {"action": "drop", "number": 9, "dropped": 1}
    store.write(RUN.id, OWNER, decisions([KEPT, long]))
    assert store.candidates(RUN.id) == [KEPT, long]
    store.write(RUN.id, OWNER, [entry(2, orjson.dumps(drop), part=EVENTS, kind="steered")])
    found = store.candidates(RUN.id)
    assert found == [KEPT, replace(long, dropped=9)]
    assert [(each.found, each.cost_usd) for each in found] == [(KEPT.found, 0.25)] * 2
    assert list(found[0].texts) == ["b.c", "$a"]
    assert list(found[0].scores) == ["1", "0"]


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_all_rows_of_a_run_begin_another(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gepa_client.journal.store.PAGE", 5)  # of attempts: all of a number are in one page
    driven(store)
    usage = {"z": 1, "cost_usd": 0.5}
    rows: list[Row] = [
        *(
            sent(number, attempt)
            for number, attempts in ((1, 3), (2, 7), (2000, 1))
            for attempt in range(1, attempts + 1)
        ),
        ended(0, usage=usage, seconds=1.5, examples=2, unpriced=1),
        *(entry(number, part=part) for part in (SEARCH, "start") for number in range(600)),
    ]
    store.write(RUN.id, OWNER, [sent(0), *rows])
    found = list(all_rows(store, RUN.id))
    assert sorted(map(repr, found)) == sorted(map(repr, rows))
    store.create(run("copy"), found)
    assert list(all_rows(store, "copy")) == found
    assert store.spending("copy") == store.spending(RUN.id)
    assert store.run("copy").claim.owner is None


@pytest.mark.parametrize("store_url", EVERY, indirect=True)
def test_requests_wait_in_their_order_until_they_have_an_outcome(store: Store, another: Callable[[], Store]) -> None:
    store.create(RUN)
    second = replace(REQUEST, id="a", created="2020-01-01T00:00:00.000+00:00")
    store.add_request(RUN.id, REQUEST)
    another().add_request(RUN.id, second)
    store.add_request(RUN.id, REQUEST)
    assert store.requests(RUN.id, waiting=True) == [REQUEST, second]
    with pytest.raises(RequestExists, match=REQUEST.id):
        store.add_request(RUN.id, replace(REQUEST, action={"kind": "unpin"}))
    store.answer_request(RUN.id, REQUEST.id, "taken", number=7)
    store.answer_request(RUN.id, REQUEST.id, "refused", reason="too late")
    store.answer_request(RUN.id, "unknown", "taken")
    assert store.requests(RUN.id, waiting=True) == [second]
    assert another().requests(RUN.id) == [replace(REQUEST, outcome="taken", number=7), second]
