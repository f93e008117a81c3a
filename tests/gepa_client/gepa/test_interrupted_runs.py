"""A run that is interrupted again and again, and resumed each time, ends as an undisturbed one."""

from collections import Counter

import gepa
import pytest
from gepa.strategies.proposal_sampling import PxNSampling

from gepa_client import ProgramReflection, RemoteAdapter
from gepa_client.journal.entries import SEARCH
from protocol.errors import ProgramFailed, TrajectoryExpired
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import cut_at_random, discovery_of, replaying, watched
from tests.gepa_client.scripted_server import ScriptedServer, failed, ok, rows
from tests.support.rounds import rounds

WORDS = ("red", "green", "blue", "pink", "grey", "teal")
BUDGET = 150


def scripted(host, *, whole_batches=False, keeps_state=False):
    """A program that learns words, fails on one row in some texts and now and then at reflecting."""
    server = ScriptedServer()
    server.seed_candidate = {"rules": "red", "style": "plain"}
    server.limits |= {"max_concurrency": 5, "whole_batches": whole_batches}
    server.evaluated = Counter()
    server.state = []
    if keeps_state:
        server.capabilities.append("adapter_state")

    def one(candidate, example, traced):
        number = example.data["n"]
        server.evaluated[(candidate["rules"], candidate["style"], example.id, traced)] += 1
        if number % 11 == 10 and "pink" in candidate["rules"]:
            return failed()
        found = WORDS[number % len(WORDS)] in candidate["rules"].split()
        return ok(0.75 + number / 1000 if found else 0.25, output=[number, found])

    def records(params):
        refs = [result["trajectory_ref"] for result in params["eval_batch"]["results"] if "trajectory_ref" in result]
        if gone := [ref for ref in refs if ref not in server.traces]:
            raise TrajectoryExpired(refs=gone)
        if "grey" in params["candidate"]["rules"] and "teal" not in params["candidate"]["rules"]:
            raise ProgramFailed("no records for grey ones", stage="run")
        shown = [{"Feedback": f"{result['output']}"} for result in params["eval_batch"]["results"]]
        if not keeps_state:
            return {"dataset": dict.fromkeys(params["components_to_update"], shown)}
        server.state[:] = [*params.get("adapter_state", server.state), len(shown)]
        remembered = [*shown, {"Feedback": "x" * (len(server.state) % 4)}]
        return {
            "dataset": dict.fromkeys(params["components_to_update"], remembered),
            "adapter_state": list(server.state),
        }

    def proposed(params):
        texts = params["candidate"]
        records = str(params["reflective_dataset"])
        if len(records) % 7 == 3:
            raise ProgramFailed("no idea")
        word = WORDS[len(records + texts["rules"]) % len(WORDS)]
        return {"texts": {name: f"{texts[name]} {word}" for name in params["components_to_update"]}}

    server.evaluate_one = one
    server.replies |= {"make_reflective_dataset": records, "propose_new_texts": proposed}
    server.url = host.serve(server.handle)
    return server


def optimize(adapter, reflection=ProgramReflection):
    adapter.propose_new_texts = None  # the reflection strategy proposes
    result = gepa.optimize(
        seed_candidate=adapter.seed_candidate,
        adapter=adapter,
        trainset=rows(20),
        valset=rows(8, 20),
        reflection_strategy=reflection(adapter),
        sampling_strategy=PxNSampling(p=2, n=2),
        use_merge=True,
        skip_perfect_score=False,
        max_metric_calls=BUDGET,
        callbacks=adapter.callbacks,
        seed=5,
    )
    adapter.journal.commit()
    return result.candidates, result.parents, result.val_subscores, result.total_metric_calls


@pytest.mark.repeated
@pytest.mark.parametrize(("whole_batches", "keeps_state", "restarts"), [(False, False, True), (True, True, False)])
@pytest.mark.parametrize("seed", rounds(2))
def test_a_run_that_is_cut_at_random_ends_as_an_undisturbed_one(
    host, tmp_path, seed, whole_batches, keeps_state, restarts
):
    undisturbed = scripted(host, whole_batches=whole_batches, keeps_state=keeps_state)
    with RemoteAdapter(undisturbed.url) as adapter:
        wanted = optimize(adapter)
    assert len(wanted[0]) > 2
    server = scripted(host, whole_batches=whole_batches, keeps_state=keeps_state)

    def restart(cuts):
        if restarts:
            server.forget(f"instance {cuts}")
            server.state.clear()

    with watched(tmp_path) as store:
        found, cuts = cut_at_random(store, server.url, seed, optimize, restart)
        assert found == wanted
        assert cuts > 3
        never_ran = ("lost", "refused")
        kinds = Counter(made.kind for made in store.attempts(RUN.id, SEARCH) if made.outcome not in never_ran)
        examples = sum(entry.kind == "evaluate" for entry in store.entries(RUN.id, SEARCH, limit=10_000))
        if not whole_batches:
            assert kinds["evaluate"] == examples
        if not restarts:
            assert kinds["retrace"] == 0
            assert server.evaluated == undisturbed.evaluated
        else:
            extra = server.evaluated - undisturbed.evaluated
            assert all(traced for *_, traced in extra)  # only what had to be traced anew
            assert not undisturbed.evaluated - server.evaluated
        with RemoteAdapter(journal=replaying(store), recorded=discovery_of(server.url)) as adapter:
            assert optimize(adapter) == wanted
