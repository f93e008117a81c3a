"""Sandboxes of a command: ready before it begins, watched while it runs, removed however it ends."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from gepa_client.cli.sandbox_start import sandboxed
from gepa_client.journal.run_events import CallRefused, FleetChanged, Progress
from gepa_client.run.control_messages import CapMessage, ControlMessage, ModelCallMessage
from gepa_client.sandboxing.session import SessionNotStarted
from gepa_client.sandboxing.session_interface import Log
from gepa_client.sandboxing.session_messages import SessionMessage
from gepa_client.settings.run_config import RunConfig
from sandbox_runtime import RunningSandbox, RuntimeUnavailable, SandboxNotReady
from sandbox_runtime.gateway import CapReached, GatewayRefusal, ProviderCall, TokenCounts
from tests.sandbox_runtime.pool.fakes import FakeSandbox
from tests.support.waiting import until

COMMIT = "a" * 40
AGAIN = "evolverpc optimize --repo ."


class FakeSetup:
    """Starts simulated sandboxes; a start raises `fails` if it is set, and reports `early` before it is ready."""

    commit = COMMIT

    def __init__(self) -> None:
        self.made: list[FakeSandbox] = []
        self.fails: Exception | None = None
        self.early: list[SessionMessage] = []
        self.closed = 0
        self.usd: list[float] = []
        self.receive: Callable[[SessionMessage], None] = lambda _: None

    @asynccontextmanager
    async def open(
        self, _: RunConfig, _run_id: str, receive: Callable[[SessionMessage], None]
    ) -> AsyncIterator["FakeSetup"]:
        self.receive = receive
        try:
            yield self
        finally:
            self.closed += 1

    async def at(self, _url: str) -> None:
        return None

    async def start(self, _number: int) -> RunningSandbox:
        if self.fails is not None:
            raise self.fails
        for message in self.early:
            self.receive(message)
        self.made.append(FakeSandbox(f"s{len(self.made)}"))
        return self.made[-1]

    def spent(self, usd: float) -> None:
        self.usd.append(usd)

    def find(self, _id: str) -> None:
        return None

    @property
    def up(self) -> int:
        return sum(sandbox.up for sandbox in self.made)


class FakeDriver:
    def __init__(self) -> None:
        self.messages: list[ControlMessage] = []
        self.stopped: list[str | None] = []

    def send(self, message: ControlMessage) -> None:
        self.messages.append(message)

    def stop(self, reason: str | None = None) -> None:
        self.stopped.append(reason)


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    yield
    assert list((tmp_path / "runtime").glob("evolverpc/*")) == []


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> FakeSetup:
    made = FakeSetup()
    monkeypatch.setattr("gepa_client.sandboxing.setup.open_setup", made.open)
    return made


def settings(**given: Any) -> RunConfig:
    return RunConfig(**{"repo": "/somewhere", "max_metric_calls": 5, "max_cost_usd": 2.5, **given})


def test_the_first_is_ready_when_the_block_begins_and_all_are_gone_after_it(
    setup: FakeSetup, capsys: pytest.CaptureFixture[str]
) -> None:
    with sandboxed(settings(sandboxes=3), "run", AGAIN, spent_usd=1.5) as sandboxes:
        fleet = sandboxes.settings.fleet
        assert fleet is not None
        assert sandboxes.settings.ref == COMMIT
        until(lambda: len(fleet.read_text().splitlines()) == 3)
        until(lambda: setup.usd == [1.5])
        assert sandboxes.settings.recorded()["fleet"] is None
        assert sandboxes.settings.recorded()["ref"] == COMMIT
    assert (setup.up, setup.closed) == (0, 1)
    assert not fleet.parent.exists()
    output = capsys.readouterr().out
    assert "starting 3 sandboxes (bubblewrap)" in output
    assert "the first of 3 sandboxes was ready" in output


def test_if_no_sandbox_starts_the_reason_and_the_next_command_are_printed_once(
    setup: FakeSetup, capsys: pytest.CaptureFixture[str]
) -> None:
    setup.fails = SandboxNotReady("sandbox c1 did not become ready (main)\nSyntaxError: invalid syntax", stage="main")
    with pytest.raises(typer.Exit) as ended, sandboxed(settings(sandboxes=4), "run", AGAIN, failed=3):
        pytest.fail("nothing is there to work with")
    output = "".join(capsys.readouterr())
    assert ended.value.exit_code == 3
    assert output.count("SyntaxError: invalid syntax") == 1
    assert f"none of 4 sandboxes could be started: {setup.fails}\nonce that is fixed: {AGAIN}" in output
    assert setup.closed == 1


def test_an_error_in_the_block_ends_the_sandboxes_and_propagates(setup: FakeSetup) -> None:
    with pytest.raises(KeyError), sandboxed(settings(), "run", AGAIN):
        raise KeyError("x")
    assert (setup.up, setup.closed) == (0, 1)


def test_events_of_the_gateway_are_sent_to_the_optimizer(setup: FakeSetup) -> None:
    driver, notes = FakeDriver(), list[Log]()
    tokens = TokenCounts(input=10, cached=2, output=5)
    call = ProviderCall("s0", "openai", "m", "/v1/chat", 200, 0.1, tokens, 0.5, 0.5, streamed=False)
    setup.early = [call, GatewayRefusal("s0", "example.com", "not allowed")]
    with sandboxed(settings(), "run", AGAIN) as sandboxes:
        for event in (CapReached(), Log("fetching [x]")):
            setup.receive(event)
        until(lambda: sandboxes.forward(driver, notes.append) or (len(driver.messages) == 3 and notes))
        assert sandboxes.has_gateway
    counted = {"status": 200, "seconds": 0.1, "input_tokens": 12, "output_tokens": 5, "cost_usd": 0.5}
    assert driver.messages == [
        ModelCallMessage.model_validate({"sandbox": "s0", "provider": "openai", "model": "m", **counted}),
        CallRefused(sandbox="s0", what="example.com", reason="not allowed"),
        CapMessage(reason="max_cost_usd of 2.5 is reached"),
    ]
    assert notes[-1] == Log("fetching [x]")


def test_events_of_the_optimizer_reach_the_sandboxes(setup: FakeSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gepa_client.sandboxing.session.IDLE_S", 0.05)
    monkeypatch.setattr("sandbox_runtime.pool.RENEW_PAUSE_S", 0.0)
    given = settings(sandboxes=4)
    notes: list[Log] = []
    with sandboxed(given, "run", AGAIN) as sandboxes:
        fleet = sandboxes.settings.fleet
        assert fleet is not None
        until(lambda: setup.up == 4)
        sandboxes.observe(Progress(evaluated=0, in_flight=3, waiting=1, up=4, slots=16, spent_usd=0.25))
        until(lambda: len(fleet.read_text().splitlines()) == 1)
        until(lambda: setup.usd[-1] == 0.25)
        assert setup.up == 4
        for sandbox in setup.made:
            sandboxes.observe(FleetChanged(kind="left", url=sandbox.url, detail="", after=None))
        until(lambda: setup.up == 1)
        url = fleet.read_text().split()[0]
        sandboxes.observe(FleetChanged(kind="resting", url=url, detail="401", after=1.0))
        stayed = next(sandbox for sandbox in setup.made if sandbox.up)
        until(lambda: stayed.tokens == 2)
        sandboxes.forward(FakeDriver(), notes.append)
        monkeypatch.setattr("gepa_client.sandboxing.session.ASK_EVERY_S", 0.0)
        sandboxes.forward(FakeDriver(), notes.append)
        until(lambda: stayed.tokens == 3)  # the second token may have expired too
        sandboxes.observe(FleetChanged(kind="back", url=url, detail="", after=None))
        sandboxes.forward(FakeDriver(), notes.append)
        sandboxes.observe(Progress(evaluated=0, in_flight=8, waiting=6, up=1, slots=4))
        until(lambda: setup.up == 4)
        sandboxes.forward(FakeDriver(), notes.append)
        assert stayed.tokens == 3
    assert any("work for fewer" in note.text for note in notes)
    assert any("work for more" in note.text for note in notes)


def test_a_death_is_reported_and_the_run_pauses_if_no_sandbox_can_be_started(setup: FakeSetup) -> None:
    driver, notes = FakeDriver(), list[Log]()
    with sandboxed(settings(), "run", AGAIN) as sandboxes:
        setup.fails = RuntimeUnavailable("the machine is full")
        setup.made[0].die_soon()
        until(lambda: sandboxes.forward(driver, notes.append) or driver.stopped)
    assert "the machine is full" in (driver.stopped[0] or "")
    assert "has ended" in notes[0].text


def test_the_sandboxes_are_replaced_if_the_run_continues_at_the_spend_cap(
    setup: FakeSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gepa_client.sandboxing.session.CAP_GRACE_S", 0.0)
    with sandboxed(settings(), "run", AGAIN) as sandboxes:
        setup.receive(CapReached())
        until(lambda: sandboxes.forward(FakeDriver(), print) or setup.up == 0)


def test_what_the_server_in_a_sandbox_refused_comes_before_how_the_sandbox_ended() -> None:
    log = "evolverpc serve: warning: no version\nevolverpc serve: trian.jsonl: no such file in /work"
    error = SandboxNotReady(
        "sandbox c1 did not become ready (main): ended before it was ready: 2", stage="main", log_tail=log
    )
    lines = str(SessionNotStarted(error, must_publish=False)).splitlines()
    assert lines[0] == "trian.jsonl: no such file in /work"
    assert lines[1].startswith("no sandbox could be started: sandbox c1 did not become ready")
