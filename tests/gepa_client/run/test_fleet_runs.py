"""Runs on several servers: they fail, return, join and leave, and the run finds what it would have found on one."""

import json
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from gepa_client.journal.entries import SEARCH
from tests.gepa_client.conftest import TIMEOUT_S, Cli, Serve, Start
from tests.gepa_client.run_folder import stored, until
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.word_program import Script, rows

ARGUMENTS = ("--max-metric-calls", 150, "--proposals", "2x2", "--check", "off", "--json")


def program(**more: Any) -> Script:
    script = Script(datasets={"train": rows(30), "val": rows(12, 100)}, **more)
    script.capabilities = (*script.capabilities, "idempotency", "async", "cancel", "refs")
    return script


def candidates(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(event["texts"], event["parents"], event["score"]) for event in events if event["event"] == "candidate"]


def undisturbed(serve: Serve, cli: Cli) -> list[tuple[Any, ...]]:
    ended = cli("optimize", serve(program()), *ARGUMENTS, "--store", "undisturbed.db")
    assert ended.status == 0, ended.stderr
    return candidates(ended.events)


def ended(process: "Popen[str]") -> list[dict[str, Any]]:
    """The events of a run, once it has ended well."""
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, stdout + stderr
    return [json.loads(line) for line in stdout.splitlines()]


def changes_of(events: list[dict[str, Any]], url: str) -> list[str]:
    """Return the kinds of the fleet events of one server."""
    return [event["kind"] for event in events if event["event"] == "fleet" and event["url"] == url.removesuffix("/rpc")]


def test_a_server_that_dies_and_returns_costs_the_run_nothing_but_time(
    serve: Serve, host: Host, cli: Cli, start: Start, tmp_path: Path
) -> None:
    steady, shaky = program(delay_s=0.03, max_concurrency=3), program(delay_s=0.03, max_concurrency=3)
    steady_url, shaky_url = serve(steady), serve(shaky)
    process = start("optimize", steady_url, shaky_url, *ARGUMENTS)
    until(lambda: len(shaky.calls("evaluate")) >= 5)
    host.stop(shaky_url)
    seen = len(steady.calls("evaluate"))
    until(lambda: len(steady.calls("evaluate")) > seen + 10)
    steady.delay_s = 0.1  # long enough for the other one to be back
    before = len(shaky.calls("evaluate"))
    again = host.serve(shaky.server().handle, port=int(shaky_url.split(":")[2].removesuffix("/rpc")))
    assert again == shaky_url
    until(lambda: len(shaky.calls("evaluate")) > before or process.poll() is not None)
    events = ended(process)
    kinds = changes_of(events, shaky_url)
    assert "resting" in kinds
    assert kinds.index("resting") < kinds.index("back")
    assert candidates(events) == undisturbed(serve, cli)
    with stored(tmp_path) as (store, run_id):
        answered = [
            made.number
            for made in store.attempts(run_id, SEARCH)
            if made.kind == "evaluate" and made.outcome not in ("lost", "refused")
        ]
    assert len(answered) == len(set(answered))


def test_servers_of_a_fleet_file_join_and_leave_while_it_runs(
    serve: Serve, cli: Cli, start: Start, tmp_path: Path
) -> None:
    first, second = program(delay_s=0.1, max_concurrency=2), program(delay_s=0.02, max_concurrency=4)
    stranger = Script(seed={"other": ""}, datasets={"train": rows(3), "val": rows(2)})
    urls = [serve(script) for script in (first, second, stranger)]
    file = tmp_path / "fleet"
    file.write_text(f"{urls[0]}\n# no other server yet\n")
    process = start("optimize", "--fleet", "fleet", *ARGUMENTS)
    until(lambda: len(first.calls("evaluate")) >= 3)
    file.write_text("\n".join(urls))
    until(lambda: len(second.calls("evaluate")) >= 3)
    file.write_text(urls[1])
    events = ended(process)
    assert changes_of(events, urls[0])[-1] == "left"
    assert changes_of(events, urls[1])[0] == "joined"
    assert "refused" in changes_of(events, urls[2])
    assert stranger.calls("evaluate") == []
    assert candidates(events) == undisturbed(serve, cli)


@pytest.mark.long
def test_a_run_whose_servers_left_the_fleet_file_before_its_driver_started_is_paused_and_continues(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet"
    fleet.write_text(serve(program()) + "\n")
    whole = cli("optimize", "--fleet", fleet, *ARGUMENTS)
    assert whole.status == 0, whole.stderr
    limit = ("--max-metric-calls", 60)
    begun = cli("optimize", "--fleet", fleet, *ARGUMENTS, *limit)
    assert begun.status == 0, begun.stderr
    fleet.write_text("# none is ready\n")
    again = ("resume", "last", "--fleet", fleet, "--max-metric-calls", 150, "--json")
    lost = cli(*again)
    [finished] = [event for event in lost.events if event["event"] == "finished"]
    assert (lost.status, finished["status"], finished["infrastructure"]) == (3, "paused", True), lost.stderr
    assert "names no server any more" in finished["reason"]
    fleet.write_text(serve(program()) + "\n")
    continued = cli(*again)
    assert continued.status == 0, continued.stderr
    assert candidates(continued.events) == candidates(whole.events)
