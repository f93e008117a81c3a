"""Resume and replay over a real socket: recorded work is not paid for twice."""

import json
import re
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gepa_client.journal.entries import CONTROL, SEARCH
from gepa_client.run.output_folder import remove_reports
from tests.gepa_client.conftest import TIMEOUT_S, Cli, Ran, Serve, Start, commands_in
from tests.gepa_client.page.page_state import read_run
from tests.gepa_client.run.conftest import run_alone
from tests.gepa_client.run_folder import best_so_far, driver_of, only_run, stored
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.word_program import Script, rows, scored
from tests.support.forked_client import ForkServer
from tests.support.waiting import until

LIMIT = 60
SETTINGS = ("--no-skip-perfect-score", "--check", "off")


def program(**more: Any) -> Script:
    return Script(datasets={"train": rows(30), "val": rows(12, 100)}, **more)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> list[tuple[Any, ...]]:
    """The candidates of the run that the tests interrupt and extend."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return run_alone(program(), folder, fork_server, "--max-metric-calls", LIMIT, *SETTINGS).found


def evaluations(folder: Path) -> tuple[set[int], int]:
    """Return the recorded example numbers and their attempts, without those a stop kept from being sent."""
    with stored(folder) as (store, run_id):
        numbers = {entry.number for entry in store.entries(run_id, SEARCH, limit=10_000) if entry.kind == "evaluate"}
        made = [attempt for attempt in store.attempts(run_id, SEARCH) if attempt.kind == "evaluate"]
    return numbers, len([attempt for attempt in made if attempt.outcome != "refused"])


# --- a run that is complete, and whose server is away -----------------------------------------------------------------


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> tuple[Path, Ran]:
    """The folder of the run, and what its command returned."""
    folder = tmp_path_factory.mktemp("complete")
    script = Script(datasets={"train": rows(30), "val": rows(12, 100), "test": rows(6, 200)})
    return folder, run_alone(script, folder, fork_server, "--max-metric-calls", 120, "--proposals", "2x2")


@pytest.fixture
def cli_there(complete: tuple[Path, Ran], fork_server: ForkServer) -> Cli:
    """Runs commands in the folder of the complete run."""
    return commands_in(complete[0], fork_server)


def test_a_replay_reports_the_same_run_without_the_server(complete: tuple[Path, Ran], cli_there: Cli) -> None:
    folder, live = complete
    replayed = cli_there("replay", "last", "--json", "--output", "again")
    assert replayed.status == 0, replayed.stdout + replayed.stderr
    assert replayed.found == live.found
    assert replayed.event("finished")["status"] == live.event("finished")["status"] == "completed"
    for event in ("tested", "rejected"):
        assert replayed.timeless(event) == live.timeless(event)
    original, again = (json.loads((at / "result.json").read_text()) for at in (only_run(folder), folder / "again"))
    assert again == original
    with stored(folder) as (store, run_id):
        assert store.run(run_id).status == "completed"


def test_a_resume_writes_missing_reports_and_without_the_server_changes_nothing(
    complete: tuple[Path, Ran], cli_there: Cli
) -> None:
    folder, live = complete
    run_id, reports = live.event("started")["run_id"], only_run(folder)
    kept = json.loads((reports / "certificate.json").read_text())
    remove_reports(reports)
    again = cli_there("resume", "last")
    assert again.status == 0, again.stderr
    assert again.stdout.startswith("this run is complete; its reports are missing, and a replay of its record writes")
    assert json.loads((reports / "certificate.json").read_text()) == kept
    assert (reports / "report.html").exists()
    written = (reports / "result.json").read_text()
    away = cli_there("resume", "last", "--max-metric-calls", 180)
    assert away.status == 3
    assert away.stderr.startswith("error: cannot connect to http://127.0.0.1:")
    assert away.stdout.startswith(f"next            evolverpc resume {run_id} --max-metric-calls 180\n")
    with stored(folder) as (store, _):
        run = store.run(run_id)
        assert (run.status, run.config["max_metric_calls"], run.claim.owner) == ("completed", 120, None)
    assert (reports / "result.json").read_text() == written


def test_a_damaged_journal_cannot_be_resumed_but_its_sound_part_can_be_forked(
    complete: tuple[Path, Ran], cli: Cli, tmp_path: Path
) -> None:
    folder, live = complete
    run_id = live.event("started")["run_id"]
    path = tmp_path / "runs" / "evolverpc.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(folder / "runs" / "evolverpc.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT digest FROM entries WHERE part = 'search' AND number = 40"
        digest = connection.execute(query).fetchone()[0].encode()
        shutil.copy(folder / "runs" / "evolverpc.db", path)
    content = path.read_bytes()
    assert content.count(digest) == 1
    path.write_bytes(content.replace(digest, bytes(8) + digest[8:]))
    refused = cli("resume", run_id, "--max-metric-calls", 190)
    assert refused.status == 2
    assert f"evolverpc fork {run_id} --at 40" in refused.stderr
    assert cli("fork", run_id, "--at", 41).status == 2
    assert cli("fork", run_id, "--at", 40).status == 0


# --- a run that continues ---------------------------------------------------------------------------------------------


def test_a_raised_budget_extends_a_completed_run_and_repeats_nothing(
    serve: Serve, cli: Cli, tmp_path: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    words = program()
    first = cli("optimize", serve(words), "--max-metric-calls", 30, *SETTINGS, "--json")
    assert first.status == 0, first.stderr
    requests = len(words.seen)
    again = cli("resume", "last")
    assert again.status == 0
    run_id = first.event("started")["run_id"]
    assert again.stdout.endswith(f"next: evolverpc resume {run_id} --max-metric-calls 60\n")
    assert first.event("finished")["reason"] == "max_metric_calls of 30 is reached"
    assert len(words.seen) == requests
    more = cli("resume", "last", "--max-metric-calls", LIMIT, "--json")
    assert more.status == 0, more.stdout
    assert more.event("started")["resumed"]
    assert more.found[: len(first.found)] == first.found
    assert more.found == undisturbed
    numbers, attempts = evaluations(tmp_path)
    assert len(words.calls("evaluate")) == len(numbers) == attempts
    assert [params["run"]["metric_calls"] for params in words.calls("finalize")] == [
        ran.event("summary")["metric_calls"] for ran in (first, more)
    ]


def test_a_fork_with_other_settings_states_from_where_on_it_differs_and_pays_for_nothing_before(
    serve: Serve, cli: Cli
) -> None:
    words = program()
    first = cli("optimize", serve(words), "--max-metric-calls", 60, "--check", "off", "--json")
    refused = cli("resume", "last", "--seed", 7, "--max-metric-calls", 120)
    whole = re.search(r"evolverpc (fork .* --at (\d+))", refused.stderr)
    assert whole is not None, refused.stderr
    assert refused.status == 2
    assert "settings.seed: 0 -> 7" in refused.stderr
    before = len(words.calls("evaluate"))

    def resumed(*fork: str) -> Ran:
        forked = cli(*fork)
        made = re.search(r"evolverpc (resume .*)", forked.stdout)
        assert made is not None, forked.stderr
        return cli(*made[1].split(), "--json")

    differs = resumed(*whole[1].split(), "--seed", "7", "--max-metric-calls", "120").event("finished")
    proposed = re.search(r"`evolverpc (fork .* --at (\d+))`", differs["reason"])
    assert proposed is not None, differs
    assert 0 < int(proposed[2]) < int(whole[2])
    assert len(words.calls("evaluate")) == before
    done = resumed(*proposed[1].split())
    assert done.event("summary")["status"] == "completed", done.stdout
    assert done.event("started")["config"]["seed"] == 7
    assert len(words.calls("evaluate")) - before == done.event("finished")["metric_calls"] - int(proposed[2])
    assert done.found[0] == first.found[0]
    assert done.found[: len(first.found)] != first.found


def test_changed_files_of_a_program_are_warned_of_while_it_runs_and_refused_once_it_was_started_again(
    host: Host, cli: Cli
) -> None:
    made = program().server()
    described = made.discover
    identity: dict[str, Any] = {"digest": "one", "files": {"program.py": "1", "rules.py": "1", "same.py": "1"}}
    identity["changed_files"] = ["program.py", "rules.py"]

    async def discover(params: dict[str, Any]) -> dict[str, Any]:
        answer = await described(params)
        return {**answer, "program": {**answer["program"], **identity}}

    made.replies["discover"] = discover
    warning = "program.py and 1 more changed after the server started, which runs the program as it was then: start it"
    assert warning in cli("optimize", host.serve(made.handle), "--max-metric-calls", 30, "--check", "off").stdout
    identity |= {"digest": "two", "files": {"program.py": "2", "new.py": "1", "same.py": "1"}, "changed_files": []}
    refused = cli("resume", "last", "--max-metric-calls", 90)
    assert refused.status == 2
    assert "\n  program.py has changed, new.py is new, rules.py is gone\n" in refused.stderr
    del identity["files"]
    refused = cli("resume", "last", "--max-metric-calls", 90)
    assert "\n  the program's code or its settings have changed\n" in refused.stderr


# --- stops by hand ----------------------------------------------------------------------------------------------------


def test_ctrl_c_lets_calls_in_flight_end_and_the_run_resumes_after_them(
    serve: Serve, cli: Cli, start: Start, tmp_path: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    words = program(delay_s=0.15, max_concurrency=4)
    process = start("optimize", serve(words), "--max-metric-calls", LIMIT, *SETTINGS)
    until(lambda: len(words.calls("evaluate")) >= 16)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(TIMEOUT_S)
    assert process.returncode == 130, stdout + stderr
    assert "stopping after examples in flight" in stdout
    assert f"next            evolverpc resume {only_run(tmp_path).name}" in stdout
    assert json.loads((only_run(tmp_path) / "result.json").read_text())["status"] == "paused"
    assert (only_run(tmp_path) / "report.html").is_file()
    assert words.calls("finalize") == []
    numbers, attempts = evaluations(tmp_path)
    counts = re.search(r" (\d+) metric calls(?: counted, (\d+) more results recorded of the batch)?", stdout)
    assert counts is not None
    assert sum(int(number or 0) for number in counts.groups()) == len(numbers)
    assert len(words.calls("evaluate")) == len(numbers) == attempts
    with stored(tmp_path) as (store, run_id):
        assert all(attempt.outcome == "ok" for attempt in store.attempts(run_id, SEARCH))
        assert (store.run(run_id).status, store.run(run_id).claim.owner) == ("paused", None)
    words.delay_s = 0.0
    more = cli("resume", "last", "--json")
    assert more.status == 0, more.stdout
    assert more.found == undisturbed
    numbers, attempts = evaluations(tmp_path)
    assert len(words.calls("evaluate")) == len(numbers) == attempts


def test_ctrl_c_twice_ends_at_once_and_calls_in_flight_are_collected(
    serve: Serve, cli: Cli, start: Start, tmp_path: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    capabilities = ("proposals", "finalize", "datasets", "idempotency", "async", "cancel")
    words = program(max_concurrency=4, capabilities=capabilities)
    runs: list[tuple[str, str]] = []

    def counted(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        runs.append((candidate["rules"], row["text"]))
        return scored(row, candidate)

    words.evaluate = counted
    process = start("optimize", serve(words), "--max-metric-calls", LIMIT, *SETTINGS)
    words.delay_s = 0.05
    until(lambda: len(words.calls("evaluate")) >= 20)
    words.delay_s = 6.0
    slow_from = len(words.calls("evaluate"))
    until(lambda: len(words.calls("evaluate")) >= slow_from + 3)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    until(lambda: "stopping after examples in flight" in process.lines.readline())
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(TIMEOUT_S)
    assert time.monotonic() - began < 6.0
    assert process.returncode == 130, stdout + stderr
    assert "stopped by hand, at once" in stdout
    words.delay_s = 0.0
    ended = cli("resume", "last", "--json")
    assert ended.status == 0, ended.stdout
    numbers, attempts = evaluations(tmp_path)
    assert attempts == len(runs) == len(numbers)
    assert ended.found == undisturbed


def test_a_run_with_a_live_driver_cannot_be_resumed_and_is_ended_by_another_command_without_a_loss(
    serve: Serve, cli: Cli, start: Start, tmp_path: Path
) -> None:
    words = program(delay_s=0.05)
    endless = ("--no-skip-perfect-score", "--past-perfect")
    process = start("optimize", serve(words), "--max-metric-calls", 100_000, *endless, "--lease-s", 8, "--check", "off")
    until(lambda: bool(best_so_far(tmp_path)))
    refused = cli("resume", "last", *endless, "--lease-s", 0.1)  # its driver's lease counts
    assert refused.status == 2, refused.stdout
    assert f"is driven by pid {driver_of(tmp_path)} on " in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert process.poll() is None
    driver = driver_of(tmp_path)
    asked = cli("cancel", "last")
    assert asked.status == 0
    assert f"asking pid {driver} on " in asked.stdout
    assert "is cancelled: on request" in asked.stdout
    stdout, stderr = process.communicate(TIMEOUT_S)
    assert process.returncode == 130, stdout + stderr
    assert "cancelled: on request" in stdout
    with stored(tmp_path) as (store, run_id):
        assert store.run(run_id).status == "cancelled"
        assert [each.outcome for each in store.requests(run_id)] == ["taken"]
        assert store.parts(run_id)[CONTROL] == 1
        [shown] = read_run(store.url, run_id).of("steer")
        assert (shown["action"], shown["at"], shown["outcome"]) == ("cancel", None, "stopped the run")
    events = [json.loads(line) for line in (only_run(tmp_path) / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events][:2] == ["phase", "started"]
    numbers, attempts = evaluations(tmp_path)
    assert len(words.calls("evaluate")) == len(numbers) == attempts
