"""The reflective datasets of an iteration are made at once, and the run is the one that makes them one by one."""

import itertools

import gepa
import pytest
from gepa.strategies.proposal_sampling import PxNSampling, SameParentSampling

from gepa_client import ConcurrentDatasets, ProgramReflection, RemoteAdapter
from gepa_client.journal.entries import REFLECTIVE_DATASET, SEARCH
from protocol.errors import ProgramFailed
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import recording, watched
from tests.gepa_client.scripted_server import AtOnce, rows

SEED = {"system": "s", "style": "t"}
MAKE = "make_reflective_dataset"


def improving(server):
    server.evaluate_one = lambda candidate, *_: server.ok(min(1.0, sum(map(len, candidate.values())) / 40))


def optimize(adapter, *, at_once=True, sampling=None, calls=90):
    datasets = ConcurrentDatasets(adapter)
    callbacks = [*adapter.callbacks, datasets] if at_once else adapter.callbacks
    return gepa.optimize(
        seed_candidate=dict(SEED),
        adapter=adapter,
        trainset=rows(9),
        valset=rows(3, 9),
        reflection_strategy=ProgramReflection(adapter),
        sampling_strategy=sampling or PxNSampling(2, 2),
        module_selector=datasets if at_once else "round_robin",
        callbacks=callbacks,
        max_metric_calls=calls,
    )


def test_the_datasets_of_an_iteration_are_made_at_once(server):
    improving(server)
    overlap = AtOnce()
    server.replies[MAKE] = overlap(server.make_reflective_dataset)
    with RemoteAdapter(server.url) as adapter:
        optimize(adapter)
    assert overlap.most == 4
    server.capabilities.append("adapter_state")
    overlap.most = 0
    with RemoteAdapter(server.url) as adapter:
        optimize(adapter)
    assert overlap.most == 1, "of a program with state each may build on the one before"


@pytest.mark.parametrize("sampling", [PxNSampling(2, 2), SameParentSampling(5)])
def test_the_run_and_its_journal_are_those_of_datasets_made_one_by_one(server, tmp_path, sampling):
    improving(server)

    def run(at_once):
        folder = tmp_path / str(at_once)
        folder.mkdir()
        with watched(folder) as store:
            with recording(store) as journal, RemoteAdapter(server.url, journal=journal) as adapter:
                result = optimize(adapter, at_once=at_once, sampling=sampling)
            made = [entry for entry in store.entries(RUN.id, SEARCH) if entry.kind == REFLECTIVE_DATASET]
            return result.to_dict(), store.entries(RUN.id, SEARCH), made

    result, entries, made = run(at_once=True)
    assert (result, entries) == run(at_once=False)[:2]
    assert len({entry.digest for entry in made}) > 4


def test_a_dataset_that_the_program_fails_to_make_costs_its_own_proposal_alone(server):
    improving(server)
    make = server.make_reflective_dataset
    requests = itertools.count(1)

    def reply(params):
        if next(requests) == 2:
            raise ProgramFailed("no records", stage="run")
        return make(params)

    server.replies[MAKE] = reply
    with RemoteAdapter(server.url) as adapter:
        optimize(adapter, calls=20)
        [failure] = adapter.failures.take()
    assert str(failure) == "make_reflective_dataset: ProgramFailed: no records"
    assert len(server.called("propose_new_texts")) == len(server.called(MAKE)) - 1
