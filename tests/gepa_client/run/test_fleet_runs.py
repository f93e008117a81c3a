"""Runs on several servers: they fail, return, join and leave, and the run finds what it would have found on one."""

from pathlib import Path
from typing import Any

import pytest

from tests.gepa_client.conftest import TIMEOUT_S, Ran, Serve, Start
from tests.gepa_client.run.conftest import run_alone
from tests.gepa_client.started_command import StartedCommand
from tests.gepa_client.word_program import Script, rows, scored
from tests.support.forked_client import ForkServer
from tests.support.waiting import until

ARGUMENTS = ("--max-metric-calls", 150, "--proposals", "2x2", "--check", "off", "--json")


def program(**more: Any) -> Script:
    script = Script(datasets={"train": rows(30), "val": rows(12, 100)}, **more)
    script.capabilities = (*script.capabilities, "idempotency", "async", "cancel", "refs")
    return script


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[tuple[Any, ...]]:
    """The candidates of the run on one server."""
    return run_alone(program(), tmp_path_factory.mktemp("one"), fork_server, *ARGUMENTS).found


def ended(process: StartedCommand) -> Ran:
    """A run, once it has ended well."""
    stdout, stderr = process.communicate(TIMEOUT_S)
    assert process.returncode == 0, stdout + stderr
    return Ran(0, stdout, stderr)


def changes_of(events: list[dict[str, Any]], url: str) -> list[str]:
    """Return the kinds of the fleet events of one server."""
    return [event["kind"] for event in events if event["event"] == "fleet" and event["url"] == url.removesuffix("/rpc")]


def test_servers_of_a_fleet_file_join_and_leave_while_it_runs(
    serve: Serve, start: Start, tmp_path: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    first, second = program(delay_s=0.1, max_concurrency=2), program(delay_s=0.02, max_concurrency=4)
    second.digest = None
    stranger = Script(seed={"other": ""}, datasets={"train": rows(3), "val": rows(2)})
    wrong = program(digest="another", evaluate=lambda row, text: {**scored(row, text), "output": row["text"].upper()})
    urls = [serve(script) for script in (first, second, stranger, wrong)]
    file = tmp_path / "fleet"
    file.write_text(f"{urls[0]}\n# no other server yet\n")
    process = start("optimize", "--fleet", "fleet", "--output", "out", *ARGUMENTS)
    until(lambda: len(first.calls("evaluate")) >= 3)
    file.write_text("\n".join(urls))
    recorded = tmp_path / "out" / "events.jsonl"
    until(lambda: len(second.calls("evaluate")) >= 8 and recorded.read_text().count('"kind":"refused"') == 2)
    file.write_text(urls[1])
    ran = ended(process)
    events = ran.events
    assert changes_of(events, urls[0])[-1] == "left"
    assert changes_of(events, urls[1])[0] == "joined"
    assert "refused" in changes_of(events, urls[2])
    assert stranger.calls("evaluate") == []
    assert "refused" in changes_of(events, urls[3])
    assert len(wrong.calls("evaluate")) == 10, "each of five rows twice, on which its output never is the run's"
    assert ran.found == undisturbed
