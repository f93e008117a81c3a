"""Sandboxes around a command: up before it begins, heard while it goes on, gone when it ends, however that comes."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from gepa_client.journal.run_events import FleetChanged, Progress
from gepa_client.run import control_messages
from gepa_client.sandboxing.session import sandboxed
from gepa_client.sandboxing.session_thread import Capped, Said, Told
from gepa_client.settings.run_config import RunConfig
from sandbox_runtime import NotReady, Unavailable
from sandbox_runtime.gateway import ModelCall, Refusal, Tokens
from sandbox_runtime.pool import Member
from tests.sandbox_runtime.pool.fakes import FakeSandbox

COMMIT = "a" * 40
LIMIT_S = 10.0
AGAIN = "gepa-client optimize --repo ."


class FakeGround:
    """Starts sandboxes that are only said to be there; `fails`: raised by a start, if anything."""

    commit = COMMIT

    def __init__(self) -> None:
        self.made: list[FakeSandbox] = []
        self.fails: Exception | None = None
        self.hangs = False
        self.cancelled = 0
        self.closed = 0
        self.usd: list[float] = []
        self.tell: Callable[[Told], None] = lambda _: None
        self.on_start: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def open(self, _: RunConfig, _run_id: str, tell: Callable[[Told], None]) -> AsyncIterator["FakeGround"]:
        self.tell = tell
        try:
            yield self
        finally:
            self.closed += 1

    async def start(self, _number: int) -> Member:
        self.on_start()
        if self.fails is not None:
            raise self.fails
        try:
            if self.hangs:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.made.append(FakeSandbox(f"s{len(self.made)}"))
        return self.made[-1]

    def spent(self, usd: float) -> None:
        self.usd.append(usd)

    @property
    def up(self) -> int:
        return sum(sandbox.up for sandbox in self.made)


class FakeOptimizer:
    def __init__(self) -> None:
        self.lines: list[Mapping[str, object]] = []
        self.stopped: list[str | None] = []

    def tell(self, line: Mapping[str, object]) -> None:
        self.lines.append(line)

    def stop(self, reason: str | None = None) -> None:
        self.stopped.append(reason)


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    yield
    assert list((tmp_path / "runtime").glob("evolverpc/fleets/*")) == []


@pytest.fixture
def ground() -> FakeGround:
    return FakeGround()


def settings(**given: Any) -> RunConfig:
    return RunConfig(**{"repo": "/somewhere", "max_metric_calls": 5, "max_cost_usd": 2.5, **given})


def until(met: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> None:
    end = time.monotonic() + LIMIT_S
    while not met():
        assert time.monotonic() < end
        meanwhile()
        time.sleep(0.002)


def test_there_are_none_where_servers_are_named() -> None:
    given = RunConfig(url=("http://127.0.0.1:1",))
    with sandboxed(given, "run", AGAIN) as sandboxes:
        assert sandboxes.settings is given
        assert not sandboxes.have_gateway
        sandboxes.attend(FakeOptimizer(), print)
        sandboxes.event(Progress(evaluated=1, in_flight=1))


def test_commands_load_nothing_of_sandboxes_until_they_are_to_start_some() -> None:
    commands = ("optimize", "resume", "check", "sandboxes")
    probe = f"import sys; from gepa_client.cli.commands import {', '.join(commands)}; print('sandbox_runtime' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "False\n"


def test_the_first_is_ready_when_the_block_begins_and_all_are_gone_after_it(
    ground: FakeGround, capsys: pytest.CaptureFixture[str]
) -> None:
    with sandboxed(settings(sandboxes=3), "run", AGAIN, spent_usd=1.5, open_ground=ground.open) as sandboxes:
        fleet = sandboxes.settings.fleet
        assert fleet is not None
        assert sandboxes.settings.ref == COMMIT
        until(lambda: len(fleet.read_text().splitlines()) == 3)
        until(lambda: ground.usd == [1.5])
        assert sandboxes.settings.recorded()["fleet"] is None
        assert sandboxes.settings.recorded()["ref"] == COMMIT
    assert (ground.up, ground.closed) == (0, 1)
    assert not fleet.parent.exists()
    said = capsys.readouterr().out
    assert "starting 3 sandboxes (bubblewrap)" in said
    assert "the first of 3 sandboxes was ready" in said


def test_warnings_of_the_runtime_are_told_and_not_printed(
    ground: FakeGround, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.on_start = lambda: logging.getLogger("sandbox_runtime.some").warning("it isolates [nothing]")
    with sandboxed(settings(), "run", AGAIN, quiet=True, open_ground=ground.open):
        pass
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("it isolates [nothing]") == 1


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("there is no bwrap: apt-get install bubblewrap"),
        NotReady("it ended", stage="main", log_tail="ModuleNotFoundError: x"),
    ],
)
def test_where_none_comes_up_the_reason_and_the_next_command_are_told(
    ground: FakeGround, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.fails = error
    with (
        pytest.raises(typer.Exit) as ended,
        sandboxed(settings(), "run", AGAIN, failed=3, open_ground=ground.open),
    ):
        pytest.fail("nothing is there to work with")
    said = capsys.readouterr().err
    assert ended.value.exit_code == 3
    assert str(error) in said
    assert getattr(error, "log_tail", "") in said
    assert f"{AGAIN}" in said
    assert ground.closed == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_by_hand_while_they_are_started_leaves_nothing(ground: FakeGround, number: int) -> None:
    ground.hangs = True
    ground.on_start = lambda: os.kill(os.getpid(), number)
    with pytest.raises(typer.Exit) as ended, sandboxed(settings(), "run", AGAIN, open_ground=ground.open):
        pytest.fail("it was stopped")
    assert ended.value.exit_code == 130
    assert (ground.cancelled, ground.closed) == (1, 1)


def test_an_error_in_the_block_ends_them_and_goes_on(ground: FakeGround) -> None:
    with pytest.raises(KeyError), sandboxed(settings(), "run", AGAIN, open_ground=ground.open):
        raise KeyError("x")
    assert (ground.up, ground.closed) == (0, 1)


def test_what_the_gateway_tells_goes_to_the_optimizer(ground: FakeGround) -> None:
    optimizer, notes = FakeOptimizer(), list[str]()
    tokens = Tokens(input=10, cached=2, output=5)
    call = ModelCall("s0", "openai", "m", "/v1/chat", 200, 0.1, tokens, 0.5, 0.5, streamed=False)
    with sandboxed(settings(), "run", AGAIN, open_ground=ground.open) as sandboxes:
        for told in (call, Refusal("s0", "example.com", "not allowed"), Capped(), Said("fetching [x]")):
            ground.tell(told)
        until(lambda: len(optimizer.lines) == 3 and bool(notes), lambda: sandboxes.attend(optimizer, notes.append))
        assert sandboxes.have_gateway
    said = [control_messages.parse_message(json.dumps(line)) for line in optimizer.lines]
    assert said[0] == control_messages.ModelCallMessage(
        sandbox="s0",
        provider="openai",
        model="m",
        path="/v1/chat",
        status=200,
        seconds=0.1,
        input_tokens=12,
        output_tokens=5,
        cost_usd=0.5,
    )
    assert said[1] == control_messages.RefusalMessage(sandbox="s0", what="example.com", reason="not allowed")
    assert said[2] == control_messages.CapMessage(reason="max_cost_usd of 2.5 is reached")
    assert "fetching \\[x]" in notes[-1]


def test_calls_go_to_the_optimizer_at_once_and_not_when_somebody_looks(ground: FakeGround) -> None:
    optimizer = FakeOptimizer()
    with sandboxed(settings(), "run", AGAIN, open_ground=ground.open) as sandboxes:
        with sandboxes.reporting_to(optimizer):
            ground.tell(Refusal("s0", "example.com", "not allowed"))
            assert len(optimizer.lines) == 1
        ground.tell(Refusal("s0", "example.com", "not allowed"))
        assert len(optimizer.lines) == 1


def test_calls_made_before_there_is_an_optimizer_are_kept_for_it(ground: FakeGround) -> None:
    call = ModelCall("s0", "openai", "m", "/v1/chat", 200, 0.1, None, 0.5, 0.5, streamed=False)
    ground.on_start = lambda: ground.tell(call)
    optimizer = FakeOptimizer()
    with sandboxed(settings(), "run", AGAIN, open_ground=ground.open) as sandboxes:
        until(lambda: len(optimizer.lines) == 1, lambda: sandboxes.attend(optimizer, print))


def test_what_the_optimizer_tells_reaches_the_sandboxes(ground: FakeGround) -> None:
    given = settings(sandboxes=4, sandbox_idle_s=0.05)
    notes: list[str] = []
    with sandboxed(given, "run", AGAIN, open_ground=ground.open) as sandboxes:
        fleet = sandboxes.settings.fleet
        assert fleet is not None
        until(lambda: ground.up == 4)
        sandboxes.event(Progress(evaluated=0, in_flight=3, waiting=1, up=4, slots=16, spent_usd=0.25))
        until(lambda: len(fleet.read_text().splitlines()) == 1)
        until(lambda: ground.usd[-1] == 0.25)
        assert ground.up == 4
        for sandbox in ground.made:
            sandboxes.event(FleetChanged(kind="left", url=sandbox.url, detail="", after=None))
        until(lambda: ground.up == 1)
        url = fleet.read_text().split()[0]
        sandboxes.event(FleetChanged(kind="resting", url=url, detail="401", after=1.0))
        stayed = next(sandbox for sandbox in ground.made if sandbox.up)
        until(lambda: stayed.tokens == 2)
        sandboxes.event(Progress(evaluated=0, in_flight=4, waiting=90, up=1, slots=4))
        until(lambda: ground.up == 4)
        sandboxes.attend(FakeOptimizer(), notes.append)
    assert any("work for fewer" in note for note in notes)
    assert any("work for more" in note for note in notes)


def test_one_that_goes_on_resting_is_asked_for_a_token_again_and_again(
    ground: FakeGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gepa_client.sandboxing.session.ASK_EVERY_S", 0.01)
    monkeypatch.setattr("sandbox_runtime.pool.pool.ASK_AGAIN_S", 0.0)
    with sandboxed(settings(), "run", AGAIN, open_ground=ground.open) as sandboxes:
        url = ground.made[0].url
        sandboxes.event(FleetChanged(kind="resting", url=url, detail="401", after=1.0))
        until(lambda: ground.made[0].tokens > 3, lambda: sandboxes.attend(FakeOptimizer(), print))
        sandboxes.event(FleetChanged(kind="back", url=url, detail="", after=1.0))
        assert sandboxes._resting == {}


def test_people_read_the_names_of_sandboxes_and_no_paths_of_sockets(ground: FakeGround) -> None:
    url = "http+unix://%2Frun%2Fevolverpc%2Fabc123%2Fserver"
    resting = FleetChanged(kind="resting", url=url, detail=f"cannot connect to {url}", after=1.0)
    with sandboxed(settings(), "run", AGAIN, open_ground=ground.open) as sandboxes:
        shown = sandboxes.shown(resting)
        assert shown == resting.model_copy(update={"url": "sandbox abc123", "detail": "cannot connect to it"})
        assert sandboxes.shown(resting.model_copy(update={"kind": "joined"})) is None
        elsewhere = resting.model_copy(update={"url": "https://a.example.com"})
        assert sandboxes.shown(elsewhere) is elsewhere
    with sandboxed(RunConfig(url=(url,)), "run", AGAIN) as none:
        assert none.shown(resting) is resting


def test_a_death_is_told_and_where_none_can_be_started_any_more_the_run_pauses(
    ground: FakeGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer, notes = FakeOptimizer(), list[str]()
    with sandboxed(settings(), "run", AGAIN, open_ground=ground.open) as sandboxes:
        ground.fails = Unavailable("the machine is full")
        ground.made[0].die_soon()
        until(lambda: bool(optimizer.stopped), lambda: sandboxes.attend(optimizer, notes.append))
    assert "the machine is full" in (optimizer.stopped[0] or "")
    assert "has ended" in notes[0]


def test_the_sandboxes_are_ended_where_the_run_goes_on_at_the_spend_cap(
    ground: FakeGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gepa_client.sandboxing.session.CAP_GRACE_S", 0.0)
    with sandboxed(settings(), "run", AGAIN, open_ground=ground.open) as sandboxes:
        ground.tell(Capped())
        until(lambda: ground.up == 0, lambda: sandboxes.attend(FakeOptimizer(), print))
