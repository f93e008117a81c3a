"""Runs on servers that do not all offer the same, or whose token is not there yet."""

from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.word_program import Script, rows

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
    replayed = cli("replay", "last", "--json")
    assert replayed.status == 0, replayed.stderr
    assert replayed.found == ended.found != []


def test_programs_of_different_names_do_not_share_a_run_unless_that_is_allowed(serve: Serve, cli: Cli) -> None:
    first, second = program("proposals"), program("proposals")
    second.name = "another"
    urls = serve(first), serve(second)
    refused = cli("optimize", *urls, "--max-metric-calls", 40, "--check", "off")
    assert refused.status == 2, refused.stderr
    shown = " ".join((refused.stdout + refused.stderr).split())
    assert "program: another instead of scripted (`allow_mixed_programs` accepts other names)" in shown
    assert not first.calls("evaluate")
    ended = cli("optimize", *urls, "--max-metric-calls", 40, "--check", "off", "--allow-mixed-programs")
    assert ended.status == 0, ended.stderr
    assert second.calls("evaluate")
