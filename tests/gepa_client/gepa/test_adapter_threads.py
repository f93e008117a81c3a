"""One adapter called from many threads at once, as `optimize_anything` calls its evaluator."""

import asyncio
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from gepa_client import RemoteAdapter, Row
from protocol.errors import ProgramFailed

THREADS, CALLS = 8, 200


@pytest.fixture
def adapter(server):
    jitter = random.Random(7)

    async def evaluate(candidate, example, _capture_traces):
        await asyncio.sleep(jitter.random() * 0.002)
        return server.ok(score=example.data["n"] + len(candidate["system"]))

    server.evaluate_one = evaluate
    server.limits = server.limits | {"max_concurrency": 64}
    with RemoteAdapter(server.url, first_backoff_s=0.001) as made:
        yield made


def from_threads(call, count=CALLS):
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(call, range(count)))


def test_calls_from_several_threads_each_get_their_own_scores(server, adapter):
    def evaluate(number):
        rows = [Row(f"{number}-{at}", {"n": number + at}) for at in range(3)]
        return adapter.evaluate(rows, {"system": "x" * (number % 5), "style": ""}).scores

    assert from_threads(evaluate) == [[number + number % 5 + at for at in range(3)] for number in range(CALLS)]
    call_ids = [params["_meta"]["call_id"] for params in server.called("evaluate")]
    assert len(set(call_ids)) == len(call_ids) == 3 * CALLS


def test_the_examples_of_a_call_have_consecutive_numbers_in_the_order_of_arrival(server, adapter):
    def evaluate(number):
        adapter.evaluate([Row(f"{number}-{at}", {"n": 0}) for at in range(4)], adapter.seed_candidate)

    from_threads(evaluate, 40)
    numbers = {
        params["batch"][0]["id"]: int(params["_meta"]["call_id"].split("/")[1]) for params in server.called("evaluate")
    }
    assert sorted(numbers.values()) == list(range(160))
    for number in range(40):
        first = numbers[f"{number}-0"]
        assert [numbers[f"{number}-{at}"] for at in range(4)] == [first, first + 1, first + 2, first + 3]


def test_every_kind_of_call_may_be_made_from_several_threads(server, adapter):
    def step(number):
        batch = adapter.evaluate([Row(str(number), {"n": number})], adapter.seed_candidate, capture_traces=True)
        dataset = adapter.make_reflective_dataset(adapter.seed_candidate, batch, ["system"])
        [child] = adapter.batch_evaluate([({"system": f"{number}", "style": ""}, [Row(str(number), {"n": number})])])
        return dataset["system"][0]["Inputs"]["n"], child.scores

    assert from_threads(step, 100) == [(number, [number + len(str(number))]) for number in range(100)]


def test_a_failed_call_fails_alone(server, adapter):
    def sometimes(_candidate, example, _capture_traces):
        if example.data["n"] % 10 == 3:
            raise ProgramFailed("it cannot start", stage="run")
        return server.ok(score=example.data["n"])

    server.evaluate_one = sometimes

    def evaluate(number):
        try:
            return adapter.evaluate([Row(f"{number}", {"n": number})], adapter.seed_candidate).scores[0]
        except ProgramFailed:
            return "failed"

    expected = ["failed" if number % 10 == 3 else number for number in range(100)]
    assert from_threads(evaluate, 100) == expected
    assert Counter(str(failure) for failure in adapter.failures.take()).total() == 10
