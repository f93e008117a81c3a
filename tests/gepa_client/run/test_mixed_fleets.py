"""Runs on servers that do not all offer the same, or do not give the same results."""

import json
from typing import Any

from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.word_program import Script, rows, scored

ARGUMENTS = ("--max-metric-calls", 100, "--json")


def program(*capabilities: str) -> Script:
    script = Script(datasets={"train": rows(12), "val": rows(6, 100)})
    script.capabilities = ("datasets", "idempotency", "async", "cancel", "refs", *capabilities)
    return script


def test_any_server_of_a_fleet_may_propose_and_be_finalized(serve: Serve, cli: Cli) -> None:
    leader, proposer = program(), program("proposals", "finalize")
    ended = cli("optimize", serve(leader), serve(proposer), *ARGUMENTS)
    assert ended.status == 0, ended.stderr
    assert proposer.calls("propose_new_texts")
    assert len(proposer.calls("finalize")) == 1
    assert not leader.calls("propose_new_texts")
    assert not leader.calls("finalize")
    assert leader.calls("evaluate")
    assert len(ended.found) > 1


def test_programs_of_different_names_and_results_share_a_run_with_a_warning_if_that_is_allowed(
    serve: Serve, cli: Cli
) -> None:
    first, second = port("python"), port("go", lowers=False)
    second.name = "another"
    urls = serve(first), serve(second)
    ended = cli("optimize", *urls, "--max-metric-calls", 40, "--check", "off", "--allow-mixed-programs", "--json")
    assert ended.status == 0, ended.stderr
    assert any("row 10: output" in event["message"] for event in ended.events if event["event"] == "warning")
    assert len(second.calls("evaluate")) > 5 + 2 * 4


def port(digest: str | None, *, lowers: bool = True) -> Script:
    """A program in some language; without `lowers` it lacks a `lower()`, which two of the rows show."""

    def evaluate(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        need = data["need"].lower() if lowers else data["need"]
        return {**scored({**data, "need": need}, candidate), "usage": {"cost_usd": 0.01}}

    script = program("proposals")
    script.datasets["val"] = [*rows(10, 100), {"text": "row 110", "need": "RED"}, {"text": "row 111", "need": "Red"}]
    script.evaluate, script.digest = evaluate, digest
    return script


def test_a_server_with_other_results_is_refused_at_the_start_and_an_equal_one_is_not(serve: Serve, cli: Cli) -> None:
    first, wrong, equal, same_code = port("python"), port("go", lowers=False), port(None), port("python")
    refused = cli("optimize", serve(first), serve(wrong), *ARGUMENTS, "--check", "off")
    assert refused.status == 2
    shown = refused.event("summary")["reason"]
    assert 'row 10: output "RED missing" instead of "red missing"' in shown
    assert "(`allow_mixed_programs` lets it join)" in shown
    assert len(first.calls("evaluate")) == len(wrong.calls("evaluate")) == 5 + 2 * 4  # two rows differ
    first.seen.clear()
    ran = cli("optimize", serve(first), serve(equal), serve(same_code), *ARGUMENTS, "--check", "off")
    assert ran.status == 0, ran.stderr
    messages = [event["message"] for event in ran.events if event["event"] == "warning"]
    assert len([message for message in messages if "no version, and its server no digest" in message]) == 1
    spending = json.loads(cli("show", "last", "--json").stdout)["spending"]
    assert sum(each["attempts"] for each in spending if each["kind"] == "compare") == 10
    assert round(ran.event("finished")["evaluation_usd"], 2) == round(sum(each["cost_usd"] for each in spending), 2)
    assert cli("replay", "last", "--json").found == ran.found
    resumed = cli("resume", "last", "--max-metric-calls", 130, "--json")
    assert resumed.status == 0, resumed.stderr
    spending = json.loads(cli("show", "last", "--json").stdout)["spending"]
    assert sum(each["attempts"] for each in spending if each["kind"] == "compare") == 15  # the run knows the first's


def test_a_server_that_states_no_code_is_compared_with_the_run_that_is_resumed(serve: Serve, cli: Cli) -> None:
    script = port(None)
    assert cli("optimize", serve(script), *ARGUMENTS, "--check", "off", "--deterministic").status == 0
    script.evaluate = port(None, lowers=False).evaluate
    changed = cli("resume", "last", "--max-metric-calls", 120, "--json")
    assert changed.status == 2
    assert 'row 10: output "RED missing" instead of "red missing"' in changed.event("summary")["reason"]
