"""GEPA adapters served unchanged give the run that `gepa.optimize` gives with the same object in one process."""

import json
from pathlib import Path

import gepa
import pytest
from gepa.adapters.default_adapter.default_adapter import DefaultAdapter
from gepa.strategies.proposal_sampling import PxNSampling

from gepa_client import ConcurrentReflection, RemoteAdapter, Row, RowLoader

SERVED = Path(__file__).parent / "served"


@pytest.fixture(scope="module")
def task():
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(SERVED))
        import equality_task

        yield equality_task


def adapter_flags(adapter, arguments, seed):
    return ["--adapter", adapter, "--adapter-args", json.dumps(arguments), "--seed-candidate", json.dumps(seed)]


def loaders(task, wrap):
    rows = [wrap(number, row) for number, row in enumerate(task.ROWS)]
    return {"trainset": RowLoader(rows[:18]), "valset": RowLoader(rows[10:], first_id=18)}


def in_one_process(task, adapter, seed_candidate, **options):
    data = loaders(task, lambda _, row: row)
    return optimize(adapter, seed_candidate, data, reflection_lm=task.reflect, **options)


def over_the_network(task, url, **options):
    data = loaders(task, lambda number, row: Row(str(number), row))
    with RemoteAdapter(url) as adapter:
        reflection = ConcurrentReflection(task.reflect)
        given = {"reflection_strategy": reflection, "callbacks": adapter.callbacks}
        return optimize(adapter, adapter.seed_candidate, data, **given, **options)


def optimize(adapter, seed_candidate, data, **options):
    return gepa.optimize(seed_candidate=seed_candidate, adapter=adapter, **data, max_metric_calls=250, **options)


OPTIONS = {
    "defaults": {},
    "epsilon greedy, cached": {"candidate_selection_strategy": "epsilon_greedy", "cache_evaluation": True},
    "several proposals an iteration": {"sampling_strategy": lambda: PxNSampling(2, 2)},
}


def made(options):
    return {name: value() if callable(value) else value for name, value in options.items()}


@pytest.fixture(scope="module")
def default_adapter_url(gepa_server, task):
    flags = adapter_flags(
        "gepa.adapters.default_adapter.default_adapter:DefaultAdapter",
        {"model": {"$import": "equality_task:model"}},
        task.DEFAULT_SEED,
    )
    with gepa_server(SERVED, *flags) as url:
        yield url


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_gepas_default_adapter_served_gives_the_run_of_one_process(task, default_adapter_url, options):
    theirs = in_one_process(task, DefaultAdapter(model=task.model), task.DEFAULT_SEED, seed=0, **made(options))
    ours = over_the_network(task, default_adapter_url, seed=0, **made(options))
    assert len(theirs.candidates) > 3  # a run in which nothing happens would prove nothing
    assert theirs.val_aggregate_scores[theirs.best_idx] > theirs.val_aggregate_scores[0]
    assert ours.to_dict() == theirs.to_dict()


@pytest.mark.parametrize("name", ["StatefulAdapter", "CountingAdapter"])
def test_an_adapter_whose_state_decides_its_scores_gives_the_same_run_too(task, gepa_server, name):
    kind = getattr(task, name)
    options = {"seed": 0, "frontier_type": "hybrid", "module_selector": "all"}
    theirs = in_one_process(task, kind(step=0.01), task.STATEFUL_SEED, **options)
    with gepa_server(SERVED, *adapter_flags(f"equality_task:{name}", {"step": 0.01}, task.STATEFUL_SEED)) as url:
        ours = over_the_network(task, url, **options)
    assert len(theirs.candidates) > 3
    assert ours.to_dict() == theirs.to_dict()
    stateless = in_one_process(task, kind(step=0.0), task.STATEFUL_SEED, **options)
    assert stateless.val_aggregate_scores != theirs.val_aggregate_scores  # the state did matter
