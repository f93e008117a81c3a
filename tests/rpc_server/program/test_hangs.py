"""Rows that hang among rows that behave, in one process: only those that hang are time-outs.

`make faults` runs `FAULT_ROUNDS` rounds of each way of serving, with sixty rows of which six hang; `make test` one with
fewer rows. A round is repeated by its number: `FAULT_ROUNDS=18 pytest -rP tests/rpc_server/program/test_hangs.py -k
17-held` also prints its time.
"""

import asyncio
import random
import time

import pytest

from rpc_server.program import process_pool
from tests.rpc_server.program.conftest import PACKAGE, needs_node
from tests.support.rounds import ALL, FAULT_ROUNDS

ROUNDS = range(FAULT_ROUNDS)
ROWS, GUILTY = (60, 6) if ALL else (12, 2)
LIMIT_S = 1.0
LONGEST = 0.5
"""Of the limit: what behaves and takes longer can be late because other tests take the processors."""

NODE = ("node", "hangs.mjs", str(PACKAGE))
THREADS, ASYNC = ({"program": program, "concurrency": 16} for program in ("hangs.py", "hangs_async.py"))
HOLD, ALL = ["hold", "hold_for"], ["hold", "hold_for", "wait"]
MODES = {"waits": (THREADS, ["wait"]), "held": (THREADS, HOLD), "async": (ASYNC, ALL), "node": ({"command": NODE}, ALL)}


def row(number, do="behave", **more):
    return {"number": number, "do": do, "seconds": 0, **more}


def program_rows(number, kinds):
    """A round's rows, always the same for its number: some of these kinds, the others within their limit.

    One in six of those takes `LONGEST` of the limit, the others a tenth at most.
    """
    source = random.Random(number)
    guilty = source.sample(range(ROWS), GUILTY)
    return [
        row(
            at,
            kinds[(number + guilty.index(at)) % len(kinds)] if at in guilty else "behave",
            seconds=LIMIT_S * source.choice([LONGEST, *[source.uniform(0, 0.1)] * 5]),
            held=source.uniform(1.5, 2.5) * LIMIT_S,
        )
        for at in range(ROWS)
    ]


def misjudged(rows, results):
    """The rows whose result is not what they deserve, with that result."""
    deserved = [("ok", row["number"]) if row["do"] == "behave" else ("timeout", None) for row in rows]
    return [
        (row, result)
        for row, result, expected in zip(rows, results, deserved, strict=True)
        if (result["status"], result["output"]) != expected
    ]


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr(process_pool, "GRACE_S", 0.3)


@pytest.mark.parametrize("mode", ["waits", "held", "async", pytest.param("node", marks=needs_node)])
@pytest.mark.repeated
@pytest.mark.parametrize("number", ROUNDS)
async def test_only_the_rows_that_hang_are_timeouts(opened, mode, number):
    settings, kinds = MODES[mode]
    rows = program_rows(number, kinds)
    async with opened(workers=1, example_timeout_s=LIMIT_S, **settings) as running:
        started = time.monotonic()
        results = await running.evaluate(*rows)
    print(f"{mode} {number}: {time.monotonic() - started:.1f} s")
    assert misjudged(rows, results) == []


@pytest.mark.parametrize("settings", [THREADS, ASYNC], ids=["threads", "async"])
async def test_a_timeout_that_neighbours_may_have_caused_is_seen_alone_and_costs_what_both_attempts_did(
    opened, settings, monkeypatch
):
    monkeypatch.setattr(process_pool, "GRACE_S", 5.0)  # both attempts end by themselves, and state their costs
    async with opened(workers=1, example_timeout_s=LIMIT_S, **settings) as running:
        result, neighbour = await running.evaluate(row(0, "hold_for", held=LIMIT_S + 0.2), row(1))
    assert result["error"]["message"] == "ran longer than 1 s"
    assert result["usage"] == {"calls": 2, "models": {"openai/gpt-5": {"calls": 2, "input_tokens": 14}}}
    assert neighbour["status"] == "ok"


async def test_a_call_that_is_no_evaluation_has_its_own_limit_and_does_not_fail_for_a_row_that_hangs(opened):
    params = {"candidate": {"prompt": ""}, "reflective_dataset": {}, "components_to_update": ["prompt"]}
    async with opened(workers=1, example_timeout_s=LIMIT_S, call_timeout_s=LIMIT_S, **ASYNC) as running:
        hanging = asyncio.create_task(running.one(row(0, "hold")))
        assert await running.program.call("propose_new_texts", params) == {"texts": {"prompt": "new"}}
        assert (await hanging)["status"] == "timeout"
        reflection = {**params, "eval_batch": {"batch": [{}] * 3}}
        assert await running.program.call("make_reflective_dataset", reflection) == {"dataset": {}}


async def test_batches_of_a_thread_safe_adapter_are_judged_one_by_one(opened):
    settings = {"adapter": "hangs:Adapter", "concurrency": 8, "seed_candidate": {"prompt": ""}}
    async with opened(**settings, example_timeout_s=LIMIT_S) as running:
        calls = [[row(0)], [row(1, "wait")], [row(2), row(3)]]
        results = await asyncio.gather(*(running.evaluate(*rows) for rows in calls))
    assert [[result["status"] for result in batch] for batch in results] == [["ok"], ["timeout"], ["ok", "ok"]]
