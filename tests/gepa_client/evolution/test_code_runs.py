"""Whole runs whose code evolves, and what they record."""

import asyncio

import pytest

from gepa_client import RemoteAdapter
from gepa_client.analysis.mutation_outcomes import recorded_mutations
from gepa_client.gepa.answer_check import AnswerCheck
from gepa_client.journal.entries import MUTATION
from gepa_client.journal.journal import Journal
from gepa_client.transport import rpc_client
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_to, commit_of
from protocol.errors import ProgramFailed
from tests.gepa_client.code_server import COST, SEED, Model
from tests.gepa_client.evolution.in_process_run import optimize
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import recording, watched


class ScriptedModel(Model):
    """Requests these changes of code in turn, then `nothing more`; a text gets one more word."""

    def __init__(self, *requests):
        super().__init__()
        self.requests = list(requests)
        self.code_prompts = []

    def complete(self, prompt):
        answer = super().complete(prompt)
        if "change request" not in prompt:
            return answer
        self.code_prompts.append(prompt)
        request = self.requests.pop(0) if self.requests else "nothing more"
        return type(answer)(f"```\n{request}\n```", 0.5, 1, 1)


def run_with(server, *requests, **settings):
    """A run whose code changes are these, one in each iteration that is for code."""
    model = ScriptedModel(*requests)
    given = {"max_metric_calls": 120, "proposals": "1", "reflection_minibatch_size": 6} | settings
    with RemoteAdapter(server.url, journal=Journal(RUN.id)) as adapter:
        found = optimize(adapter, model, **given)
        return found, model, adapter


def test_a_change_of_code_becomes_a_candidate(code_server):
    server = code_server()
    found, model, adapter = run_with(server, "learn green", evolve="code")
    seed, better = found.candidates
    assert commit_of(better) != commit_of(seed)
    event = found.named("mutated")[0]
    assert (
        better[GIT_BRANCH] == f"{event.branch}@{event.commit}" == f"evolve/{RUN.id}/{event.number}@{commit_of(better)}"
    )
    assert (event.request, event.lines_added, event.lines_removed, event.cost_usd) == ("learn green", 2, 1, COST)
    asked = server.called("apply_mutation")[0]
    assert asked["name"] == {"run": RUN.id, "number": event.number}
    assert [set(record) for record in asked["mutation"]["records"]] == [{"Feedback"}] * 6
    assert "steps: []" in model.code_prompts[0]
    assert len(server.called("outline_code")) == 2  # one for each commit that something was asked for
    assert adapter.journal.spending[MUTATION].cost_usd == COST * len(server.called("apply_mutation"))


def test_a_rejection_proposes_nothing_and_is_in_the_history_of_the_next_request(code_server):
    server = code_server()
    found, model, adapter = run_with(server, "break check", "learn green", evolve="code")
    [event] = found.named("mutation_rejected")
    assert (event.stage, event.reason, event.cost_usd) == ("check", "check reports a failure", COST)
    assert "Nothing was tried yet." in model.code_prompts[0]
    assert (
        "break check\nOutcome: rejected at the stage `check`: check reports a failure\nthe last line"
        in model.code_prompts[1]
    )
    past = {
        "request": "break check",
        "outcome": "rejected",
        "stage": "check",
        "reason": "check reports a failure\nthe last line",
    }
    assert server.called("apply_mutation")[1]["mutation"]["history"] == [past]
    assert adapter.failures.take() == []
    assert adapter.journal.spending[MUTATION].cost_usd == COST * len(server.called("apply_mutation"))


@pytest.mark.parametrize("fails", [False, True])
def test_an_agent_that_cannot_work_or_whose_server_fails_then_is_a_failure_that_was_paid_for(code_server, fails):
    server = code_server()
    if fails:
        error = ProgramFailed("agent reports a failure", usage={"cost_usd": COST})
        server.replies["apply_mutation"] = lambda _: (_ for _ in ()).throw(error)
    _, _, adapter = run_with(server, "break agent", evolve="code", max_metric_calls=20)
    assert "agent reports a failure" in str(adapter.failures.take()[0])
    assert adapter.journal.spending[MUTATION].cost_usd == COST * len(server.called("apply_mutation"))


def test_added_texts_are_evolved_and_removed_ones_left_alone(code_server):
    server = code_server()
    found, _, _ = run_with(server, "learn green text hint drop rules", max_metric_calls=200)
    assert added_to(found.candidates[1]) == {"hint": "text of hint"}
    grown = [candidate for candidate in found.candidates if added_to(candidate) not in ({}, {"hint": "text of hint"})]
    assert grown and all(added_to(candidate)["hint"].startswith("text of hint ") for candidate in grown)
    asked = [call["components_to_update"] for call in server.called("make_reflective_dataset")]
    assert ["hint"] in asked and [ADDED_COMPONENTS] not in asked
    on_new_code = [call for call in server.called("make_reflective_dataset") if commit_of(call["candidate"]) != SEED]
    assert on_new_code and all(call["components_to_update"] != ["rules"] for call in on_new_code)


def test_code_and_all_texts_can_change_at_once(code_server):
    server = code_server()
    found, _, _ = run_with(server, "learn green", module_selector="all", max_metric_calls=30)
    assert commit_of(found.candidates[1]) != SEED
    assert found.candidates[1]["rules"] != "red"


def test_a_change_request_that_cannot_be_used_is_asked_for_once_more_then_dropped(code_server):
    server = code_server()
    requests = ["", "learn green", "", "", "learn blue"]
    found, model, adapter = run_with(server, *requests, evolve="code", max_metric_calls=60, check=AnswerCheck(5))
    made = [params["mutation"]["request"] for params in server.called("apply_mutation")]
    assert made[:2] == ["learn green", "learn blue"]
    assert len(found.candidates) > 1
    again = ["You have answered this once already" in prompt for prompt in model.code_prompts[:5]]
    assert again == [False, True, False, True, False]
    assert model.code_prompts[1].endswith(
        "Answer now with the whole change request and nothing else, within ``` blocks."
    )
    assert adapter.failures.take() == []


def test_secrets_are_replaced_in_diffs_but_not_in_bundles(code_server, tmp_path):
    server = code_server()
    fine = server.replies["apply_mutation"]
    secret = "abcd1234efgh"
    server.replies["apply_mutation"] = lambda params: {**fine(params), "bundle": secret, "diff": f"+{secret}\n"}
    with watched(tmp_path) as store:
        with recording(store, secrets=[secret]) as journal, RemoteAdapter(server.url, journal=journal) as adapter:
            optimize(adapter, ScriptedModel("learn green"), evolve="code", max_metric_calls=60, proposals="1")
        applied = next(iter(recorded_mutations(store, RUN.id).values())).applied
    assert applied is not None
    assert (applied.bundle, applied.diff) == (secret, "+[redacted]\n")


def test_progress_messages_of_a_server_are_reported(code_server, monkeypatch):
    monkeypatch.setattr(rpc_client, "WATCHED_S", 0.01)
    server = code_server()
    fine, answer = server.replies["apply_mutation"], server.answer

    async def takes_its_time(params):
        await asyncio.wait_for(enough.wait(), 10)
        return fine(params)

    async def reports_progress(method, params):
        reply = await answer(method, params)
        if "pending" in reply:
            server.polls += 1
            reply["pending"]["progress"]["message"] = f"step {server.polls // 2}"
            if server.polls == 3:
                enough.set()
        return reply

    server.polls, enough = 0, asyncio.Event()
    server.replies["apply_mutation"] = takes_its_time
    server.answer = reports_progress
    found, _, _ = run_with(server, "learn green", evolve="code", max_metric_calls=20)
    [begun] = found.named("mutation_started")
    progress = found.named("mutation_progress")
    assert [event.message for event in progress] == ["step 0", "step 1"]
    assert {event.number for event in progress} == {begun.number}
