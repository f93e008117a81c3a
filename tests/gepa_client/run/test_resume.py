"""Resume and replay over a real socket: recorded work is not paid for twice."""

import asyncio
import json
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gepa_client.journal.entries import SEARCH
from gepa_client.run.output_folder import remove_reports
from tests.gepa_client.conftest import TIMEOUT_S, Ran
from tests.gepa_client.run_folder import best_so_far, only_run, stored, until
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.word_program import Script, rows, scored

Serve = Callable[[Script], str]
Cli = Callable[..., Ran]
Start = Callable[..., "subprocess.Popen[str]"]


def program(**more: Any) -> Script:
    return Script(datasets={"train": rows(30), "val": rows(12, 100)}, **more)


def found(ran: Ran) -> list[tuple[Any, ...]]:
    """Return the reported candidates."""
    return [
        (event["texts"], event["parents"], event["score"], event["metric_calls"])
        for event in ran.events
        if event["event"] == "candidate"
    ]


def undisturbed(serve: Serve, cli: Cli, *arguments: object) -> list[tuple[Any, ...]]:
    """Return the candidates of the same run without an interruption."""
    ended = cli("optimize", serve(program()), *arguments, "--check", "off", "--json", "--store", "undisturbed.db")
    assert ended.status == 0, ended.stderr
    return found(ended)


def evaluations(folder: Path) -> tuple[set[int], int]:
    """Return the recorded example numbers and their attempts, without those a stop kept from being sent."""
    with stored(folder) as (store, run_id):
        numbers = {entry.number for entry in store.entries(run_id, SEARCH, limit=10_000) if entry.kind == "evaluate"}
        made = [attempt for attempt in store.attempts(run_id, SEARCH) if attempt.kind == "evaluate"]
    return numbers, len([attempt for attempt in made if attempt.outcome != "refused"])


def test_resume_writes_the_reports_of_a_complete_run_whose_command_was_killed_before_it_wrote_them(
    serve: Serve, cli: Cli, host: Host, tmp_path: Path
) -> None:
    url = serve(Script(datasets={"train": rows(30), "val": rows(12, 100), "test": rows(6, 200)}))
    completed = cli("optimize", url, "--max-metric-calls", 60, "--check", "off")
    assert completed.status == 0, completed.stderr
    folder = only_run(tmp_path)
    kept = json.loads((folder / "certificate.json").read_text())
    remove_reports(folder)
    host.stop(url)
    again = cli("resume", "last")
    assert again.status == 0, again.stderr
    assert again.stdout.startswith("this run is complete; its reports are missing, and a replay of its record writes")
    assert json.loads((folder / "certificate.json").read_text()) == kept
    assert (folder / "report.md").read_text().startswith("# Run ")
    assert (folder / "report.html").exists()
    assert "a larger limit extends it" in cli("resume", "last").stdout


def test_a_raised_budget_extends_a_completed_run_and_repeats_nothing(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    words = program()
    url = serve(words)
    first = cli("optimize", url, "--max-metric-calls", 60, "--check", "off", "--json")
    assert first.status == 0, first.stderr
    requests = len(words.seen)
    again = cli("resume", "last")
    assert again.status == 0
    run_id = first.event("started")["run_id"]
    assert again.stdout.endswith(f"next: gepa-client resume {run_id} --max-metric-calls 120\n")
    assert first.event("finished")["reason"] == "max_metric_calls of 60 is reached"
    assert len(words.seen) == requests
    more = cli("resume", "last", "--max-metric-calls", 150, "--json")
    assert more.status == 0, more.stdout
    assert more.event("started")["resumed"]
    assert found(more)[: len(found(first))] == found(first)
    assert found(more) == undisturbed(serve, cli, "--max-metric-calls", 150)
    numbers, attempts = evaluations(tmp_path)
    assert len(words.calls("evaluate")) == len(numbers) == attempts
    assert [params["run"]["metric_calls"] for params in words.calls("finalize")] == [
        ran.event("summary")["metric_calls"] for ran in (first, more)
    ]


def test_the_fork_that_a_refused_resume_proposes_can_be_resumed_with_the_other_setting(serve: Serve, cli: Cli) -> None:
    words = program()
    assert cli("optimize", serve(words), "--max-metric-calls", 60, "--check", "off").status == 0
    refused = cli("resume", "last", "--seed", 7, "--max-metric-calls", 120)
    proposed = re.search(r"gepa-client (fork .* --at (\d+) .*)", refused.stderr)
    assert proposed is not None, refused.stderr
    assert refused.status == 2
    assert "settings.seed: 0 -> 7" in refused.stderr
    assert 0 < int(proposed[2]) < 60
    forked = cli(*proposed[1].split())
    assert forked.status == 0, forked.stderr
    made = re.search(r"gepa-client (resume .*)", forked.stdout)
    assert made is not None
    before = len(words.calls("evaluate"))
    done = cli(*made[1].split(), "--json")
    assert done.event("summary")["status"] == "completed", done.stdout
    assert done.event("started")["config"]["seed"] == 7
    assert len(words.calls("evaluate")) - before <= 120 - int(proposed[2]) + 12


def test_a_program_that_has_changed_is_refused_with_the_names_of_its_files(host: Host, cli: Cli) -> None:
    words = program()
    made = words.server()
    described = made.discover
    identity = {"digest": "one", "files": {"program.py": "1", "rules.py": "1", "same.py": "1"}}

    async def discover(params: dict[str, Any]) -> dict[str, Any]:
        answer = await described(params)
        return {**answer, "program": {**answer["program"], **identity}}

    made.replies["discover"] = discover
    first = cli("optimize", host.serve(made.handle), "--max-metric-calls", 30, "--check", "off", "--json")
    run_id = first.event("started")["run_id"]
    identity |= {"digest": "two", "files": {"program.py": "2", "new.py": "1", "same.py": "1"}}
    refused = cli("resume", run_id, "--max-metric-calls", 60)
    assert refused.status == 2
    assert "\n  program.py has changed, new.py is new, rules.py is gone\n" in refused.stderr
    del identity["files"]
    assert (
        "\n  the program's code or its settings have changed\n"
        in cli("resume", run_id, "--max-metric-calls", 60).stderr
    )


def test_a_server_that_runs_without_a_change_of_its_files_is_warned_of_in_optimize_and_resume(
    host: Host, cli: Cli
) -> None:
    made = program().server()
    described = made.discover

    async def discover(params: dict[str, Any]) -> dict[str, Any]:
        answer = await described(params)
        return {**answer, "program": {**answer["program"], "changed_files": ["program.py", "rules.py"]}}

    made.replies["discover"] = discover
    url = host.serve(made.handle)
    warning = "program.py and 1 more changed after the server started, which runs the program as it was then: start it"
    assert warning in cli("optimize", url, "--max-metric-calls", 30, "--check", "off").stdout
    assert warning in cli("resume", "last", "--max-metric-calls", 60).stdout


def test_the_time_of_an_example_and_how_many_are_in_flight_are_recorded_and_may_change(serve: Serve, cli: Cli) -> None:
    words = program(capabilities=("proposals", "finalize", "datasets", "example_timeout"))
    limits = ("--concurrency", 2, "--example-timeout-s", 9)
    first = cli("optimize", serve(words), "--max-metric-calls", 30, *limits, "--check", "off", "--json")
    run_id = first.event("started")["run_id"]
    sent = {params["_meta"]["example_timeout_s"] for params in words.calls("evaluate")}
    again = cli("resume", run_id, "--max-metric-calls", 60, "--json", "--example-timeout-s", 8, "--concurrency", 5)
    assert (first.status, again.status) == (0, 0), again.stderr
    assert sent == {9.0}
    assert {params["_meta"]["example_timeout_s"] for params in words.calls("evaluate")} == {9.0, 8.0}


def test_a_resume_without_a_server_or_a_token_is_refused_and_changes_nothing(
    serve: Serve, host: Host, cli: Cli, tmp_path: Path
) -> None:
    url = serve(program())
    first = cli("optimize", url, "--max-metric-calls", 40, "--check", "off", "--json")
    run_id = first.event("started")["run_id"]
    result = (only_run(tmp_path) / "result.json").read_text()
    (tmp_path / "token").write_text("wrong")
    mistaken = cli("resume", "last", "--token-file", "token", "--max-metric-calls", 80)
    assert (mistaken.status, mistaken.stdout) == (2, "")
    [line] = mistaken.stderr.splitlines()
    assert line.startswith("error: the server refused the token from token")
    host.stop(url)
    away = cli("resume", "last", "--max-metric-calls", 80)
    assert away.status == 3
    [line] = away.stderr.splitlines()
    assert line.startswith(f"error: cannot connect to {url.removesuffix('/rpc')}")
    assert away.stdout == (
        f"next            gepa-client resume {run_id} --max-metric-calls 80\n"
        "if a server has started again at another address, add its URL and --token-file\n"
    )
    with stored(tmp_path) as (store, _):
        run = store.run(run_id)
        assert (run.status, run.config["max_metric_calls"], run.claim.owner) == ("completed", 40, None)
    assert (only_run(tmp_path) / "result.json").read_text() == result


def test_a_replay_reports_the_same_run_without_the_server(serve: Serve, host: Host, cli: Cli, tmp_path: Path) -> None:
    words = Script(datasets={"train": rows(30), "val": rows(12, 100), "test": rows(6, 200)})
    url = serve(words)
    live = cli("optimize", url, "--max-metric-calls", 120, "--proposals", "2x2", "--check", "off", "--json")
    assert live.status == 0, live.stderr
    host.stop(url)
    replayed = cli("replay", "last", "--json", "--output", "again")
    assert replayed.status == 0, replayed.stdout + replayed.stderr
    assert found(replayed) == found(live)
    assert replayed.event("finished")["status"] == live.event("finished")["status"] == "completed"
    for event in ("tested", "rejected"):
        assert _plain(replayed, event) == _plain(live, event)
    original, again = (json.loads((at / "result.json").read_text()) for at in (only_run(tmp_path), tmp_path / "again"))
    assert again == original
    with stored(tmp_path) as (store, run_id):
        assert store.run(run_id).status == "completed"


def _plain(ran: Ran, name: str) -> list[dict[str, Any]]:
    """Events without the time they happened at."""
    return [{**event, "seconds": 0} for event in ran.events if event["event"] == name]


def test_a_replay_ends_before_the_number_asked_for(serve: Serve, cli: Cli) -> None:
    live = cli("optimize", serve(program()), "--max-metric-calls", 80, "--check", "off", "--json")
    seed_only = cli("replay", "last", "--until", 12, "--json")
    assert seed_only.status == 0
    assert found(seed_only) == found(live)[:1]


# --- stops by hand ----------------------------------------------------------------------------------------------------


def test_ctrl_c_lets_calls_in_flight_end_and_the_run_resumes_after_them(
    serve: Serve, cli: Cli, start: Start, tmp_path: Path
) -> None:
    words = program(delay_s=0.15, max_concurrency=4)
    process = start("optimize", serve(words), "--max-metric-calls", 60, "--check", "off")
    until(lambda: len(words.calls("evaluate")) >= 16)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, stdout + stderr
    assert "stopping after examples in flight" in stdout
    assert f"next            gepa-client resume {only_run(tmp_path).name}" in stdout
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
    assert found(more) == undisturbed(serve, cli, "--max-metric-calls", 60)
    numbers, attempts = evaluations(tmp_path)
    assert len(words.calls("evaluate")) == len(numbers) == attempts


@pytest.mark.parametrize("collects", [True, pytest.param(False, marks=pytest.mark.long)])
def test_ctrl_c_twice_ends_at_once_and_at_most_the_calls_in_flight_run_again(
    serve: Serve, cli: Cli, start: Start, tmp_path: Path, collects: bool
) -> None:
    more = ("idempotency", "async", "cancel") if collects else ()
    words = program(max_concurrency=4, capabilities=("proposals", "finalize", "datasets", *more))
    runs: list[tuple[str, str]] = []

    def counted(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        runs.append((candidate["rules"], row["text"]))
        return scored(row, candidate)

    words.evaluate = counted
    url = serve(words)
    process = start("optimize", url, "--max-metric-calls", 60, "--no-skip-perfect-score", "--check", "off")
    words.delay_s = 0.05
    until(lambda: len(words.calls("evaluate")) >= 20)
    words.delay_s = 6.0
    slow_from = len(words.calls("evaluate"))
    until(lambda: len(words.calls("evaluate")) >= slow_from + 3)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    stdout_line = process.stdout
    assert stdout_line is not None
    until(lambda: "stopping after examples in flight" in stdout_line.readline())
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert time.monotonic() - began < 6.0
    assert process.returncode == 130, stdout + stderr
    assert "stopped by hand, at once" in stdout
    words.delay_s = 0.0
    ended = cli("resume", "last", "--json")
    assert ended.status == 0, ended.stdout
    numbers, attempts = evaluations(tmp_path)
    assert attempts - len(numbers) <= (0 if collects else 4)
    assert len(runs) - len(numbers) <= (0 if collects else 4)
    assert found(ended) == undisturbed(serve, cli, "--max-metric-calls", 60, "--no-skip-perfect-score")


def test_a_cancel_by_another_command_ends_a_run_after_the_calls_in_flight(
    serve: Serve, cli: Cli, start: Start, tmp_path: Path
) -> None:
    words = program(delay_s=0.1, max_concurrency=4)
    process = start(
        "optimize",
        serve(words),
        "--max-metric-calls",
        100_000,
        "--no-skip-perfect-score",
        "--lease-s",
        1,
        "--check",
        "off",
    )
    until(lambda: bool(best_so_far(tmp_path)))
    assert cli("cancel", "last").status == 0
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, stdout + stderr
    assert "cancelled: on request" in stdout
    numbers, attempts = evaluations(tmp_path)
    assert len(words.calls("evaluate")) == len(numbers) == attempts


def test_a_run_with_a_live_driver_cannot_be_resumed_and_loses_nothing(
    serve: Serve, cli: Cli, start: Start, tmp_path: Path
) -> None:
    words = program(delay_s=0.05)
    endless = ("--no-skip-perfect-score", "--past-perfect")
    process = start("optimize", serve(words), "--max-metric-calls", 100_000, *endless, "--lease-s", 5, "--check", "off")
    until(lambda: bool(best_so_far(tmp_path)))
    refused = cli("resume", "last", *endless)
    assert refused.status == 2, refused.stdout
    assert f"is driven by pid {_child_of(process)} on " in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, stdout + stderr
    events = [json.loads(line) for line in (only_run(tmp_path) / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events][:2] == ["phase", "warning"]
    assert "started" in {event["event"] for event in events}
    assert events[-1]["reason"] == "stopped by hand"
    numbers, attempts = evaluations(tmp_path)
    assert len(words.calls("evaluate")) == len(numbers) == attempts


def _child_of(process: "subprocess.Popen[str]") -> int:
    [child] = subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(process.pid)], text=True).split()
    return int(child)


def test_a_run_stopped_while_its_test_rows_were_scored_has_only_the_rest_of_them_left(
    serve: Serve, cli: Cli, start: Start, tmp_path: Path
) -> None:
    words = Script(
        datasets={"train": rows(30), "val": rows(12, 100), "test": rows(12, 200)}, max_concurrency=2, delay_s=0.02
    )

    def slow_at_test(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        words.delay_s = 0.4 if int(row["text"].split()[1]) >= 200 else words.delay_s
        return scored(row, candidate)

    words.evaluate = slow_at_test
    process = start("optimize", serve(words), "--max-metric-calls", 40, "--check", "off")
    until(lambda: any(params["batch"][0]["split"] == "test" for params in words.calls("evaluate")))
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, stdout + stderr
    spent = len(words.calls("evaluate"))
    assert spent < 60
    words.evaluate, words.delay_s = scored, 0.0
    more = cli("resume", "last", "--json")
    assert more.status == 0, more.stdout
    assert {event["rows"] for event in more.events if event["event"] == "tested"} == {12}
    phases = [event["phase"] for event in more.events if event["event"] == "phase"]
    assert phases == ["connecting", "replaying", "testing", "finalizing"]
    on_test = [
        (params["candidate"]["rules"], params["batch"][0]["id"])
        for params in words.calls("evaluate")
        if params["batch"][0]["split"] == "test"
    ]
    assert len(on_test) == len(set(on_test)) == 24
    assert len(words.calls("finalize")) == 1


def test_a_damaged_journal_cannot_be_resumed_but_its_sound_part_can_be_forked(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    words = program()
    first = cli("optimize", serve(words), "--max-metric-calls", 60, "--check", "off", "--json")
    run_id = first.event("started")["run_id"]
    path = tmp_path / "runs" / "evolverpc.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT digest FROM entries WHERE part = 'search' AND number = 40"
        digest = connection.execute(query).fetchone()[0].encode()
    content = path.read_bytes()
    assert content.count(digest) == 1
    path.write_bytes(content.replace(digest, bytes(8) + digest[8:]))
    before = len(words.calls("evaluate"))
    refused = cli("resume", run_id, "--max-metric-calls", 90)
    assert refused.status == 2
    assert f"gepa-client fork {run_id} --at 40" in refused.stderr
    assert len(words.calls("evaluate")) == before
    assert cli("fork", run_id, "--at", 41).status == 2
    forked = cli("fork", run_id, "--at", 40, "--json")
    assert forked.status == 0, forked.stderr
    more = cli("resume", json.loads(forked.stdout)["id"], "--max-metric-calls", 60, "--json")
    assert more.status == 0, more.stdout
    assert more.event("finished")["status"] == "completed"
    assert found(more) == found(first)


# --- a resume that ends before it has replayed the record -------------------------------------------------------------


def _reports(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in only_run(folder).iterdir() if path.name.startswith("re")}


@pytest.mark.long
def test_ctrl_c_before_the_replay_of_a_resumed_run_keeps_its_reports_and_states_what_is_recorded(
    serve: Serve, cli: Cli, start: Start, tmp_path: Path
) -> None:
    first = cli("optimize", serve(program()), "--max-metric-calls", 60, "--check", "off", "--json")
    before = _reports(tmp_path)
    assert {"report.md", "report.html", "result.json"} <= set(before)
    silent = program(replies={"discover": lambda _params: asyncio.sleep(60)})
    process = start("resume", "last", serve(silent), "--max-metric-calls", 90)
    until(lambda: bool(silent.calls("discover")))
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, stdout + stderr
    seed, calls = first.events[-1]["seed_score"], first.events[-1]["metric_calls"]
    recorded = f"score {seed:.2f} -> {first.events[-1]['best_score']:.2f}, {calls} metric calls (12 validation rows)"
    assert stdout.splitlines()[-1] == f"{recorded}, as recorded: {_KEPT}"
    assert f"next            gepa-client resume {only_run(tmp_path).name}" in stdout
    assert _reports(tmp_path) == before


_KEPT = "this ended before it had replayed them, and nothing is lost"
