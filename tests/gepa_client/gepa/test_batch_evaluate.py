"""A served GEPA adapter with a `batch_evaluate` of its own: GEPA's batches reach it in one call, as in one process."""

import json
from pathlib import Path

import gepa
import pytest
from gepa.strategies.proposal_sampling import PxNSampling

from gepa_client import ProgramReflection, RemoteAdapter, Row, RpcClient
from protocol.errors import InvalidParams

SERVED = Path(__file__).parent / "served"
WORDS = [f"word{number}" for number in range(12)]
SEED = {"rules": "none"}


class Silent:
    def log(self, message):
        pass


@pytest.fixture
def served(gepa_server, tmp_path):
    """A function that starts a server of the adapter; and what the adapter was called with."""
    log = tmp_path / "calls"

    def start(adapter="batching_adapter:Adapter", *flags):
        arguments = ["--adapter", adapter, "--seed-candidate", json.dumps(SEED)]
        if adapter.startswith("batching"):
            arguments += ["--adapter-args", json.dumps({"log": str(log)})]
        return gepa_server(SERVED, *arguments, *flags)

    return start, lambda: log.read_text(encoding="utf-8").splitlines()


def candidates_of(call):
    """How many candidates a call of the adapter had."""
    return len(json.loads(call[call.index("[") :]))


def optimize(adapter, rows, **options):
    result = gepa.optimize(
        dict(SEED),
        rows,
        adapter=adapter,
        sampling_strategy=PxNSampling(2, 3),
        max_metric_calls=150,
        logger=Silent(),
        **options,
    )
    return result.candidates, result.parents, result.val_subscores, result.total_metric_calls


def test_it_gets_the_same_calls_and_gives_the_same_run_as_in_one_process(served, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SERVED))
    from batching_adapter import Adapter

    local = tmp_path / "local"
    in_one_process = optimize(Adapter(str(local)), WORDS)
    start, calls = served
    with start() as url, RemoteAdapter(url) as adapter:
        assert optimize(adapter, WORDS) == in_one_process
    assert calls() == local.read_text(encoding="utf-8").splitlines()
    assert max(map(candidates_of, calls())) > 1


def test_batches_of_several_candidates_travel_in_one_call_with_a_strategy_too(served):
    start, calls = served
    with start() as url, RemoteAdapter(url) as adapter:
        optimize(adapter, WORDS, reflection_strategy=ProgramReflection(adapter), callbacks=adapter.callbacks)
    assert max(map(candidates_of, calls())) > 1


def test_items_beyond_the_largest_batch_travel_in_several_calls(served):
    start, calls = served
    sizes = {"a": 3, "b": 2, "c": 7, "d": 1}
    items = [
        ({"rules": f"{name} word1"}, [Row(str(at), WORDS[at]) for at in range(size)]) for name, size in sizes.items()
    ]
    with start("batching_adapter:Adapter", "--max-batch-size", "5") as url, RemoteAdapter(url) as adapter:
        batches = adapter.batch_evaluate(items)
    assert [batch.scores for batch in batches] == [
        [float(WORDS[at] == "word1") for at in range(len(rows))] for _, rows in items
    ]
    assert sorted(calls()) == [f"batch_evaluate {sizes}" for sizes in ([1], [2], [3, 2], [5])]


@pytest.mark.parametrize("traced", [True, False])
def test_batch_evaluate_captures_traces_if_requested(served, traced):
    start, calls = served
    items = [(SEED, [Row("1", WORDS[1])]), ({"rules": "word1"}, [Row("2", WORDS[2])])]
    with start() as url, RemoteAdapter(url) as adapter:
        batches = adapter.batch_evaluate(items, capture_traces=traced)
    assert [batch.trajectories is not None for batch in batches] == [traced, traced]
    assert calls() == ["batch_evaluate [1, 1]" if traced else "batch_evaluate untraced [1, 1]"]


async def test_several_candidates_are_refused_if_not_offered_or_if_their_sizes_do_not_add_up(served):
    start, _ = served
    items = [{"candidate": SEED, "size": 2}]
    with start() as url:
        async with RpcClient(url) as client:
            with pytest.raises(InvalidParams, match="items"):
                await client.evaluate(SEED, [{"id": "1", "data": "word1"}], items=items)
    with start("equality_task:StatefulAdapter", "--adapter-args", '{"step": 1}') as url:
        async with RpcClient(url) as client:
            assert not client.offers("batch_evaluate")
            with pytest.raises(InvalidParams, match="batch_evaluate"):
                await client.evaluate(SEED, [{"id": str(at), "data": "word1"} for at in range(2)], items=items)
