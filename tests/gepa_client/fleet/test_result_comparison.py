"""Servers that join are compared by results of the seed: a wrong one is found, and noise refuses no equal one."""

import random
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from gepa_client.errors import NoVerdict
from gepa_client.fleet.seed_comparison import SeedComparison, difference
from gepa_client.transport.calls import Call, Reply
from tests.gepa_client.fleet.conftest import Ledger
from tests.gepa_client.scripted_server import failed, ok

ROWS = 5


@pytest.mark.parametrize(
    ("first", "other", "exact", "found"),
    [
        ([ok(1.0, "red")], [ok(1.0, "Red")], True, 'row r: output "Red" instead of "red"'),
        ([ok(1, {"a": 1, "b": [2]})], [ok(1.0, {"b": [2.0], "a": 1})], True, None),
        ([ok(1, True)], [ok(1, 1)], True, "row r: output 1 instead of true"),
        ([ok(0.1 + 0.2)], [ok(0.3)], True, "row r: score 0.3 instead of 0.30000000000000004"),
        ([ok(0.1 + 0.2)], [ok(0.3)], False, None),
        ([ok(objective_scores={"a": 1})], [ok()], False, 'row r: objective scores null instead of {"a": 1}'),
        ([ok(feedback="right")], [ok(feedback="Right")], True, 'row r: feedback "Right" instead of "right"'),
        ([ok(feedback="off by 0.1 m")], [ok(feedback="off by 0.10000000000000001 m")], False, None),
        ([ok(feedback="off by 0.1 m")], [ok(feedback="off by 0.2 m")], False, "row r: feedback"),
        ([failed()], [ok()], False, 'row r: status "ok" instead of "program_error"'),
        ([failed(output="a")], [failed(output="b")], True, None),
        ([ok()], [failed("timeout")], False, None),
        ([ok(0, "x")], [{**ok(), "status": "rollout", "score": None, "output": "x"}], False, None),
        ([ok(0, "x"), ok(0, "y")], [ok(0, "z"), ok(0, "z")], False, None),
        ([ok(0, "x"), ok(0, "y")], [ok(1, "z"), ok(1, "z")], False, "row r: score 1 instead of 0"),
        ([ok(output="\x1b[2J")], [ok(output="a" * 99)], True, f'row r: output "{"a" * 58}… instead of "\\u001b[2J"'),
        ([ok(output="a" * 99 + "b")], [ok(output="a" * 99 + "c")], True, f'row r: output …{"a" * 20}c" instead of …'),
    ],
)
def test_results_differ_by_what_one_server_always_gives_and_the_other_never(first, other, exact, found):
    differing = difference("r", first, other, exact=exact)
    assert (differing is None) == (found is None)
    if found is not None:
        assert str(differing).startswith(found)


def server(give):
    """An endpoint whose `give(row)` is the result of a row; `runs` counts its evaluations."""

    async def send(call, _call_id):
        made.runs += 1
        return Reply([give(int(call.rows[0]))])

    client = SimpleNamespace(instance_id="i", offers=lambda _: False, discovery=described, send=send)
    made = SimpleNamespace(url="http://server", client=client, offers=lambda _: True, runs=0)
    return made


described = SimpleNamespace(limits=SimpleNamespace(max_concurrency=8))


async def compared(leader, joining, *, exact=False, known=None):
    """Compare with another server, or with the results that the run has where no server works."""

    async def results_of_the_run():
        return {} if known is None else {row: [known] for row in range(ROWS)}

    calls = [Call("evaluate", {}, Reply, f"row {row}", rows=[str(row)]) for row in range(ROWS)]
    comparison = SeedComparison(calls, lambda _: Ledger(), is_exact=lambda _: exact, known=results_of_the_run)
    assert await comparison.has_results() == (known is not None)
    return await comparison.compare(joining, (lambda _: nullcontext(leader)) if known is None else None)


draw = random.Random(5)
NOISE = {
    "a coin on every row": lambda _: ok(score := draw.randrange(2), f"{score}"),
    "a coin on one row": lambda row: ok(draw.randrange(2) if row == 3 else 1, "same"),
    "other texts and other scores each time": lambda _: ok(draw.random(), f"{draw.random()}"),
    "a failure now and then": lambda _: failed() if draw.random() < 0.3 else ok(1, "same"),
}


@pytest.mark.parametrize("noise", NOISE)
async def test_a_noisy_program_joins_its_equal_in_50_of_50_tries(noise):
    for _ in range(50):
        assert not (await compared(server(NOISE[noise]), server(NOISE[noise]))).differences


async def test_a_wrong_row_is_found_in_a_noisy_program_and_at_once_in_a_deterministic_one():
    def leading(row):
        return ok(1, "right") if row == 2 else NOISE["a coin on every row"](row)

    wrong = server(lambda row: ok(0, "wrong") if row == 2 else leading(row))
    found = await compared(server(leading), wrong)
    assert (found.certain, [each.row for each in found.differences]) == (True, ["2"])
    assert wrong.runs < 30
    wrong.runs = 0
    found = await compared(server(lambda row: ok(row)), server(lambda row: ok(row + (row == 4))), exact=True)
    assert str(found) == "its results with the seed are not those of the run: row 4: score 5 instead of 4"
    found = await compared(None, server(lambda _: ok(2)), known=ok(1))
    assert (len(found.differences), found.certain) == (5, False)
    assert not (await compared(None, server(NOISE["other texts and other scores each time"]), known=ok(2))).differences
    with pytest.raises(NoVerdict, match=r"row 0 has no result that can be compared \(timeout\)"):
        await compared(server(lambda _: ok()), server(lambda row: failed("timeout") if row == 0 else ok()))


def test_a_verdict_is_that_of_one_process_and_not_of_the_next_one_at_its_address():
    first, second, third = (SimpleNamespace(server=SimpleNamespace(name="s", instance_id=each)) for each in "abc")
    comparison = SeedComparison([], lambda _: Ledger(), is_exact=lambda _: True)
    comparison.refuse("http://server", first, "other scores")
    assert comparison.verdict("http://server", second) is None
    comparison.agree(second, "http://server")
    verdicts = [comparison.verdict("http://server", each) for each in (first, second, third)]
    assert verdicts == ["other scores", "", None]


@pytest.mark.parametrize(("name", "verdict"), [("evolverpc", ""), ("another", None)])
def test_an_equal_digest_shows_equal_code_of_our_servers_alone(name, verdict):
    program = SimpleNamespace(digest="the same")
    servers = [SimpleNamespace(name=name, language="go", instance_id=each) for each in "ab"]
    first, other = (SimpleNamespace(server=each, program=program) for each in servers)
    comparison = SeedComparison([], lambda _: Ledger(), is_exact=lambda _: True)
    comparison.agree(first, "http://first")
    assert comparison.verdict("http://other", other) == verdict
