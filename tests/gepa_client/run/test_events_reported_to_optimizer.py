"""The driver process receives the model calls, refusals and caps of a gateway while it drives a run."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gepa_client.errors import Interrupted
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.rows import Row
from gepa_client.journal.entries import EVALUATE, GATEWAY, MODEL_CALL, SEARCH, StoredRun
from gepa_client.journal.run_events import CallRefused, Event, Finished, Progress
from gepa_client.journal.store import open_store
from gepa_client.run import stops, supervisor
from gepa_client.run.control_messages import CapMessage, DriverJob
from gepa_client.run.gateway_record import GatewayRecord
from gepa_client.run.run_view import RunView
from gepa_client.run.stops import held_calls_abandoned
from gepa_client.run.supervisor import DriverProcess
from gepa_client.settings.run_config import RunConfig
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.exported_page import shown_text
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import recording, watched
from tests.gepa_client.run.test_gateway import call
from tests.gepa_client.scripted_server import TOKEN, Host, ScriptedServer
from tests.gepa_client.word_program import Script, scored
from tests.support.forked_client import ForkServer
from tests.support.waiting import until

TIMEOUT_S = 60.0
NASTY = "<img src=x>`|\x1b[2J"


@pytest.fixture(autouse=True)
def _forked_drivers(monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer) -> None:
    monkeypatch.setattr(supervisor, "subprocess", fork_server.forking_subprocess())
    monkeypatch.setenv("GEPA_TOKEN", TOKEN)


@pytest.fixture
def job(tmp_path: Path) -> DriverJob:
    (tmp_path / "out").mkdir()
    return DriverJob(
        store=str(tmp_path / "store.db"), run_id="r-1", owner="first", config={}, output=tmp_path / "out", gateway=True
    )


def created(job: DriverJob, **settings: Any) -> DriverJob:
    """The job with a run to drive."""
    config = RunConfig(**settings)
    with closing(open_store(job.store)) as store:
        store.create(StoredRun(id=job.run_id, config=config.recorded(), output=str(job.output)))
    return job.model_copy(update={"config": config.model_dump(mode="json", exclude_unset=True)})


def driven(job: DriverJob, on_event: Callable[[Event, DriverProcess], None] = lambda *_: None) -> RunView:
    """Drive the run and return the record of its events."""
    record = RunView()
    assert job.output is not None
    deadline = time.monotonic() + TIMEOUT_S
    with DriverProcess(job, job.output / "log.txt") as process:
        try:
            while time.monotonic() < deadline:
                event = process.next(0.1)
                if event is not None:
                    record.apply(event)
                    on_event(event, process)
        except EOFError:
            pass
    assert record.finished is not None, process.log_tail()
    return record


def calling(words: Script) -> list[DriverProcess]:
    """Make the program call a model per example and claim a price; return the processes to report the calls to."""
    receivers: list[DriverProcess] = []
    numbers = iter(range(10**6))

    def evaluate(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        for process in receivers:
            process.send(call(next(numbers), cost_usd=0.01))
        return {**scored(row, candidate), "usage": {"cost_usd": 5.0, "input_tokens": 2}}

    words.evaluate, words.delay_s, words.max_concurrency = evaluate, 0.01, 4
    return receivers


def test_the_model_costs_of_programs_end_a_run_that_a_resume_continues_and_are_shown_with_its_refusals(
    serve: Serve, cli: Cli, words: Script, job: DriverJob
) -> None:
    receivers = calling(words)
    job = created(job, url=[serve(words)], max_cost_usd=0.3, max_metric_calls=5000)

    def on_event(_event: Event, process: DriverProcess) -> None:
        if not receivers:
            for _ in range(3):
                process.send(CallRefused(sandbox="s-1", what=NASTY, reason="not allowed"))
        receivers[:] = [process]

    record = driven(job, on_event)
    assert [(event.reason, event.times) for event in record.refusals] == [("not allowed", 3)]
    page = shown_text(record, None)
    assert "Model calls\nmodel\ncalls\nfailed\n" in page
    assert "refused\n3 times" in page
    shown = cli("show", "last", "--store", job.store)
    assert "openai/small" in shown.stdout
    assert "not allowed (3 times)" in shown.stdout
    assert "\x1b" not in shown.stdout
    finished = record.finished
    assert isinstance(finished, Finished)
    assert (finished.status, finished.evaluation_usd) == ("completed", None)
    assert finished.reason is not None
    assert finished.reason.startswith("max_cost_usd of $0.3 is reached: $0.3")
    spent = finished.model_usd
    assert spent is not None
    assert 0.3 <= spent <= 0.4
    assert record.model_calls is not None
    assert record.model_calls.total.cost_usd == pytest.approx(spent)
    more = {**job.config, "max_cost_usd": 0.6}
    again = driven(job.model_copy(update={"owner": "second", "config": more}), on_event)
    assert again.finished is not None
    assert again.finished.model_usd is not None
    assert 0.6 <= again.finished.model_usd <= 0.7
    with closing(open_store(job.store)) as store:
        numbers = [attempt.number for attempt in store.attempts(job.run_id, GATEWAY)]
        assert numbers == list(range(round(again.finished.model_usd * 100)))
        kinds = {spending.kind: spending for spending in store.spending(job.run_id) if spending.outcome == "ok"}
        assert (kinds[EVALUATE].cost_usd, kinds[EVALUATE].unpriced) == (0.0, 0)
        assert kinds[EVALUATE].input_tokens == 2 * kinds[EVALUATE].attempts
        assert kinds[MODEL_CALL].cost_usd == pytest.approx(again.finished.model_usd)
        assert store.run(job.run_id).counters["spent_usd"] == pytest.approx(again.finished.model_usd)


def test_a_cap_ends_the_run_with_its_reason(serve: Serve, words: Script, job: DriverJob) -> None:
    words.delay_s, words.max_concurrency = 0.2, 2
    job = created(job, url=[serve(words)], max_metric_calls=5000)
    readings: list[Progress] = []

    def on_event(event: Event, process: DriverProcess) -> None:
        if isinstance(event, Progress):
            readings.append(event)
            if event.evaluated:
                process.send(CapMessage(reason="there is no more"))

    record = driven(job, on_event)
    assert record.finished is not None
    assert (record.finished.status, record.finished.reason) == ("completed", "there is no more")
    assert max(reading.slots for reading in readings) == 2
    assert max(reading.waiting for reading in readings) > 0


def test_at_the_cap_held_calls_are_abandoned_without_a_score(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stops, "QUIET_S", 0.2)
    monkeypatch.setattr(stops, "POLL_S", 0.02)
    server = ScriptedServer()
    gate = threading.Event()

    async def held(*_: Any) -> dict[str, Any]:
        if server.runs.total() <= 3:
            return server.ok()
        await asyncio.to_thread(gate.wait, TIMEOUT_S)
        return server.failed("timeout")

    server.evaluate_one = held
    server.url = host.serve(server.handle)
    gateway = GatewayRecord()
    with watched(tmp_path) as store:
        try:
            with recording(store) as journal, RemoteAdapter(server.url, journal=journal) as adapter:
                gateway.begin(journal, store, lambda _event: None)
                stopper = threading.Thread(target=_at_the_cap, args=(server, journal))
                with held_calls_abandoned(adapter, gateway) as abandon:
                    journal.cancel_token.add_listener(lambda _reason: abandon())
                    stopper.start()
                    with pytest.raises(Interrupted, match="the money is spent") as caught:
                        adapter.evaluate([Row(str(number), {}) for number in range(6)], {"system": "s", "style": "t"})
                stopper.join(TIMEOUT_S)
            assert caught.value.status == "completed"
            assert len(store.entries(RUN.id, SEARCH)) == 3
        finally:
            gate.set()


def _at_the_cap(server: ScriptedServer, journal: Any) -> None:
    until(lambda: server.runs.total() == 6)
    journal.cancel_token.cancel(Interrupted("completed", "the money is spent"))
