"""GEPA's merge of two candidates whose code differs merges their code, and only then."""

from types import SimpleNamespace

import pytest

from gepa_client import RemoteAdapter
from gepa_client.evolution.code_merge import CodeMerge
from gepa_client.evolution.lineage import Lineage
from gepa_client.evolution.mutations import MutationRequest, MutationRunner
from protocol.code import ADDED_COMPONENTS, added_components, added_to, commit_of
from protocol.errors import MutationRejected
from tests.gepa_client.scripted_server import rows


class Merging:
    """A pool of three: the seed and two children of it, whose code the server made; `merge` evaluates GEPA's pick."""

    def __init__(self, server, adapter):
        self.server, self.adapter, self.events = server, adapter, []
        self.lineage = Lineage(adapter.commits)
        self.mutations = MutationRunner(adapter, self.lineage, self.events.append)
        self.code_merge = CodeMerge(adapter, self.mutations)
        adapter.complete = self.code_merge.complete
        seed = adapter.seed_candidate
        self.pool = [seed, *(self.child(seed, f"learn {word}") for word in ("green", "blue"))]
        self.state = SimpleNamespace(
            program_candidates=self.pool,
            full_program_trace=[{"merged_entities": (1, 2, 0)}],
            evaluation_cache="the cache",
        )

    def child(self, parent, request):
        mutation = {"kind": "change_request", "request": request}
        [entry] = self.mutations.make([MutationRequest(parent, mutation, request)])
        return dict(entry.applied.candidate)

    def merge(self, pick):
        self.code_merge.on_iteration_start({"state": self.state})
        self.code_merge.on_evaluation_start({"candidate_idx": None, "parent_ids": [1, 2]})
        self.during = self.state.evaluation_cache
        self.batch = self.adapter.evaluate(rows(2), pick)
        self.code_merge.on_evaluation_end({})
        return pick


@pytest.fixture
def merging(code_server):
    adapters = []

    def start():
        server = code_server()
        adapter = RemoteAdapter(server.url)
        adapters.append(adapter)
        return Merging(server, adapter)

    yield start
    for adapter in adapters:
        adapter.close()


def test_the_code_of_both_parents_is_evaluated(merging):
    run = merging()
    for candidate, tone, style in zip(run.pool, ("old", "new", "old"), "abc", strict=True):
        candidate[ADDED_COMPONENTS] = added_components({"tone": tone, "style": style})
    pick = run.merge(dict(run.pool[2]))
    assert added_to(pick) == {"tone": "new", "style": "c"}, "only one parent changed the tone"
    code = run.server.repository[commit_of(pick)]
    assert code["steps"] == ["blue", "green"]
    assert code["parents"] == [commit_of(run.pool[2]), commit_of(run.pool[1])]
    assert run.server.called("evaluate")[-1]["candidate"] == pick
    assert [event.parents for event in run.events if event.event == "mutated"][-1] == []
    assert (run.during, run.state.evaluation_cache) == (None, "the cache")  # no scores of what is not merged yet


def test_a_merge_whose_evaluation_failed_leaves_the_next_iteration_its_cache_and_its_code(merging):
    run = merging()
    run.code_merge.on_iteration_start({"state": run.state})
    run.code_merge.on_evaluation_start({"candidate_idx": None, "parent_ids": [1, 2]})
    run.code_merge.on_iteration_start({"state": run.state})
    assert run.state.evaluation_cache == "the cache"
    run.adapter.evaluate(rows(1), dict(run.pool[2]))
    assert run.server.called("evaluate")[-1]["candidate"] == run.pool[2]


@pytest.mark.parametrize("text", ["teal", None])
def test_a_rejected_merge_leaves_what_gepa_chose_and_fails_what_is_a_parent(merging, text):
    run = merging()

    def conflict(_params):
        raise MutationRejected("no", stage="edit", reason="both change steps")

    run.server.replies["apply_mutation"] = conflict
    chosen = run.pool[2] if text is None else {**run.pool[2], "rules": text}
    assert run.merge(dict(chosen)) == chosen
    assert bool(run.server.called("evaluate")) == (text is not None)
    assert run.batch.scores == [0, 0] or text is not None
    assert run.events[-1].event == "mutation_rejected"
    assert "both change steps" in run.lineage.as_text(run.pool[1])
