"""A resume or a replay keeps every figure and file of the run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gepa_client.errors import Interrupted
from gepa_client.journal.entries import SteeringRequest, StoredRun, now
from gepa_client.journal.run_events import CandidateFound, Emit, Event, Finished, Started
from gepa_client.run.control_messages import DriverJob
from gepa_client.run.driver import drive
from gepa_client.run.gateway_record import GatewayRecord
from gepa_client.transport.event_loop import CancelToken
from tests.gepa_client.conftest import Cli, Serve, commands_in
from tests.gepa_client.run_folder import only_run, stored
from tests.gepa_client.scripted_server import TOKEN, Host
from tests.gepa_client.word_program import Script, rows
from tests.support.forked_client import ForkServer


@pytest.fixture(autouse=True)
def as_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment of the optimizer's process."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setenv("GEPA_TOKEN", TOKEN)


def record(folder: Path) -> StoredRun:
    with stored(folder) as (store, run_id):
        return store.run(run_id)


def settings(run: StoredRun, **more: Any) -> dict[str, Any]:
    named = ("url", "max_metric_calls", "lease_s", "trainset", "valset")
    return {key: run.config[key] for key in named if run.config[key] is not None} | more


def driven(
    folder: Path, cancel_token: CancelToken | None = None, on: Emit = lambda _: None, **more: Any
) -> list[Event]:
    """Resume the only run in this process and return the events of its driver."""
    run = record(folder)
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        on(event)

    config = settings(run, **more.pop("config", {}))
    where = str(folder / "runs" / "evolverpc.db")
    job = DriverJob(store=where, run_id=run.id, owner="me", config=config, output=Path(str(run.output)), **more)
    drive(job, emit, cancel_token or CancelToken(), lambda: None, GatewayRecord())
    return events


def finished(events: list[Event]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Iterator[Path]:
    """The folder of a run of several candidates that is complete; its server answers."""
    folder, host = tmp_path_factory.mktemp("complete"), Host()
    url = host.serve(Script(datasets={"train": rows(30), "val": rows(12, 100)}).server().handle)
    ended = commands_in(folder, fork_server)("optimize", url, "--max-metric-calls", 150, "--check", "off")
    assert ended.status == 0, ended.stdout + ended.stderr
    yield folder
    host.close()


def test_a_run_stopped_during_its_replay_keeps_its_newer_figures(there: Path) -> None:
    before, folder = record(there), only_run(there)
    assert before.counters["candidates"] > 2
    files = {name: (folder / name).read_bytes() for name in ("best_candidate.json", "result.json")}
    cancel_token = CancelToken()

    def stop(event: Event) -> None:
        if isinstance(event, CandidateFound) and event.index == 1:
            cancel_token.cancel(Interrupted("paused", "stopped by hand"))

    events = driven(there, cancel_token, stop)
    assert (finished(events).status, finished(events).files) == ("paused", ["best_candidate.json", "result.json"])
    after = record(there)
    del before.counters["active_seconds"], after.counters["active_seconds"]
    assert after.counters == before.counters
    assert after.best == before.best
    assert {name: (folder / name).read_bytes() for name in files} == files


def test_a_replay_writes_to_no_tracker(there: Path) -> None:
    events = driven(there, replays=True, config={"tracking": ["wandb", "mlflow"]})
    assert finished(events).status == "completed", finished(events)
    [started] = [event for event in events if isinstance(event, Started)]
    assert started.config["tracking"] == []


def test_a_stop_holds_if_it_was_asked_for_since_the_command_began(there: Path) -> None:
    for seen, status, outcome in ((0, "paused", "taken"), (2, "completed", "refused")):
        with stored(there) as (store, run_id):
            store.add_request(run_id, SteeringRequest(status, {"kind": "pause"}, "ada@desk", now()))
        assert finished(driven(there, seen_requests=seen)).status == status
        with stored(there) as (store, run_id):
            assert [each.outcome for each in store.requests(run_id) if each.id == status] == [outcome]


def test_a_perfect_run_ends_and_continues_past_perfect(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    url = serve(Script(datasets={"train": rows(30), "val": rows(12, 100)}))
    ended = cli("optimize", url, "--max-metric-calls", 150, "--check", "off", "--name", "words")
    before = record(tmp_path)
    assert before.counters["metric_calls"] < 150
    assert before.reason is not None and before.reason.startswith("perfect_score of 1 is reached: candidate ")
    assert f"completed: {before.reason}" in ended.stdout
    complete, following = cli("resume", "last", "--max-metric-calls", 600).stdout.splitlines()
    assert complete.endswith(f"this run is completed ({before.reason}); to continue it all the same:")
    more = cli(*following.split()[2:])
    assert more.status == 0, more.stderr
    after = record(tmp_path)
    assert after.reason == "max_metric_calls of 150 is reached"
