"""A served GEPA adapter with a `batch_evaluate` of its own: GEPA's batches reach it in one call, as in one process."""

import json
from pathlib import Path

import gepa
import pytest
from gepa.strategies.proposal_sampling import PxNSampling

from gepa_client import RemoteAdapter, Row

SERVED = Path(__file__).parent / "served"
WORDS = [f"word{number}" for number in range(12)]
SEED = {"rules": "none"}


@pytest.fixture
def served(gepa_server, tmp_path):
    """A function that starts a server of the adapter; and what the adapter was called with."""
    log = tmp_path / "calls"

    def start(*flags):
        adapter = ("--adapter", "batching_adapter:Adapter", "--adapter-args", json.dumps({"log": str(log)}))
        return gepa_server(SERVED, *adapter, "--seed-candidate", json.dumps(SEED), *flags)

    return start, lambda: log.read_text(encoding="utf-8").splitlines()


def optimize(adapter, rows, **options):
    result = gepa.optimize(
        dict(SEED), rows, adapter=adapter, sampling_strategy=PxNSampling(2, 3), max_metric_calls=150, **options
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
    assert max(len(json.loads(call[call.index("[") :])) for call in calls()) > 1, "candidates of a call"


def test_items_beyond_the_largest_batch_travel_in_several_calls(served):
    start, calls = served
    sizes = {"a": 3, "b": 2, "c": 7, "d": 1}
    items = [
        ({"rules": f"{name} word1"}, [Row(str(at), WORDS[at]) for at in range(size)]) for name, size in sizes.items()
    ]
    with start("--max-batch-size", "5") as url, RemoteAdapter(url) as adapter:
        batches = adapter.batch_evaluate(items)
    assert [batch.scores for batch in batches] == [
        [float(WORDS[at] == "word1") for at in range(len(rows))] for _, rows in items
    ]
    assert sorted(calls()) == [f"batch_evaluate {sizes}" for sizes in ([1], [2], [3, 2], [5])]
