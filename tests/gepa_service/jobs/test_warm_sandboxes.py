"""Steps and batches that find a sandbox which was started before them."""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gepa_client.errors import ConnectionLost
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.address import Address
from gepa_service.jobs import warm_sandboxes
from gepa_service.jobs.batches_and_steps import ProcessWorks
from gepa_service.jobs.dispatcher_lease import ID, LeaseRecord
from gepa_service.jobs.messages import REPORTS, Begin, ProgramOrder, Reported, Stop, Warm
from gepa_service.jobs.warm_sandboxes import ModelSpending, WarmSandboxes, WorkSandboxes
from gepa_service.jobs.work_session import STOPPED
from gepa_service.model.tenant import TENANTS
from gepa_service.model.work import PROMPT, LogChunk, ProgramWork, Work
from gepa_service.records import new_id
from gepa_service.service import Revealed
from sandbox_runtime.gateway import ProviderCall
from tests.gepa_client.sandboxing.test_session import FakeSetup
from tests.gepa_service.faults.processes import lineage_of
from tests.gepa_service.jobs.test_secrets_of_jobs import model
from tests.gepa_service.platform import Platform, shared_processes_in, working
from tests.sandbox_runtime.source.repositories import commit
from tests.support.modal_cloud import found_by_this_process, loopback_modal_beside
from tests.support.processes import command_of
from tests.support.waiting import eventually, until

WARM = "the sandbox was started before the work"
CALLING = """
import json, os, urllib.request

seed_candidate = {"prompt": "plain"}


def call(text="hello"):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]["content"]


def score(example, output):
    return 1.0
"""
PROGRAM = (
    CALLING
    + """
import signal, time


if os.path.exists("calls_at_start"):
    with open(open("calls_at_start").read(), "a") as marker:
        print("calls", file=marker)
    call()
if os.path.exists("fails_at_start"):
    raise RuntimeError("it cannot begin")


def run(example, candidate):
    time.sleep(example.get("sleep", 0))
    if example.get("hangs"):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        while True:
            pass
    seen = os.path.exists("left")
    open("left", "w").close()
    return [candidate["prompt"], os.environ.get("OWN_KEY", "no key").split()[0], seen]
"""
)
CALL_USD = 0.01


@pytest.fixture
def dispatcher(service: Platform) -> Iterator[None]:
    with working(service.parts(), service.place(), at_once=4, keep_warm=True):
        yield


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return commit_program(tmp_path / "program")


def commit_program(folder: Path, **files: str) -> Path:
    commit(folder, {"program.py": PROGRAM, "gepa.toml": 'program = "program.py"\n', **files})
    return folder


def warm(service: Platform) -> int:
    """The sandboxes that wait for work, as the dispatcher reports them."""
    lease = service.records.get(LeaseRecord, TENANTS, ID)
    return 0 if lease is None else lease.warm


def begun(service: Platform, program: Path, row: dict[str, Any] | None = None, **settings: Any) -> Work:
    """Submit a step on a row."""
    mutation = {"kind": PROMPT, "texts": {"prompt": "better"}}
    tasks = ({"task_id": "0", "row": row or {"text": "t"}},)
    made = ProgramWork(mutation=mutation, tasks=tasks, makes=new_id("program"))
    return service.work("step", program, made, **settings)


def priced(base_url: str) -> dict[str, Any]:
    """The settings by which each call of a program costs `CALL_USD`."""
    return {
        "model_prices": {"m": [0, CALL_USD / 5 * 1_000_000]},  # an answer has five tokens
        "model_providers": {"openai": {"base_url": base_url, "key_env": "OPENAI_API_KEY"}},
    }


def done(service: Platform, work: Work) -> tuple[list[Any], bool]:
    """Wait for the end of a step; return the output of its row, and whether its sandbox was warm."""
    ended = service.ended(work)
    assert ended.status == "completed", (ended.reason, service.log(work))
    assert ended.result is not None
    chunks = service.records.every(LogChunk, "acme", {"job_id": work.id})
    return ended.result["tried"][0]["after"]["output"], any(WARM in line.text for each in chunks for line in each.lines)


def test_each_step_has_a_sandbox_of_its_own_that_the_one_before_has_had_started(
    service: Platform, program: Path, dispatcher: None
) -> None:
    assert done(service, begun(service, program)) == (["better", "no", False], False)
    until(lambda: warm(service) == 1)
    assert done(service, begun(service, program)) == (["better", "no", False], True)
    [process] = shared_processes_in(service.place().folder)
    os.kill(process, signal.SIGKILL)
    until(lambda: warm(service) == 0)
    assert done(service, begun(service, program)) == (["better", "no", False], False)


async def test_a_work_that_is_stopped_as_it_begins_reports_its_end(tmp_path: Path) -> None:
    lines: list[str] = []
    works = ProcessWorks(lines.append)
    folder = tmp_path / "work"
    order = ProgramOrder(
        id="step_1", folder=folder, settings={}, what="step", program=ProgramWork(), done=frozenset(), warm_mb=0
    )
    works.take(Begin(order=order).model_dump_json().encode())
    works.take(Stop(work=folder.name).model_dump_json().encode())
    await works.close()
    assert [REPORTS.validate_json(line) for line in lines] == [Reported(work=folder.name, message=STOPPED)]


class HeldSetup(FakeSetup):
    """The sandboxes of one work, or of none yet: `is_held`: whether calls to models wait."""

    is_held = True

    def release_model_calls(self) -> None:
        self.is_held = False

    def call(self, usd: float | None) -> None:
        self.receive(ProviderCall("s0", "openai", "m", "/v1", 200, 0.1, None, usd, 0.0, streamed=False))


@pytest.fixture
def setups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[HeldSetup]:
    """The set-ups that are opened, whose sandboxes are simulated."""
    opened: list[HeldSetup] = []

    def open_setup(settings: RunConfig, run: str, receive: Any, *, holds_model_calls: bool, **_: object) -> Any:
        opened.append(HeldSetup())
        opened[-1].is_held = holds_model_calls
        return opened[-1].open(settings, run, receive)

    monkeypatch.setattr(warm_sandboxes, "open_setup", open_setup)
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return opened


@dataclass
class Works:
    """The works of a process, one after the other or at once. `reports`: what waits; `printed`: of all works."""

    program: Path
    printed: list[str] = field(default_factory=list)
    reports: list[Warm] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.warm = WarmSandboxes((), self.reports.append, most_mb=3000)

    def begun(
        self, spending: ModelSpending | None = None, code: str | None = None, **given: Any
    ) -> AbstractAsyncContextManager[WorkSandboxes]:
        """A block in which a work has its sandboxes."""
        fixed = {"repo": str(self.program), "sandbox": "process", "sandbox_memory_mb": 1500, "max_metric_calls": 1}
        settings, spending = RunConfig.model_validate(fixed | given), spending or ModelSpending()
        return self.warm.taken("work", settings, lambda log: self.printed.append(log.text), spending, code, warm_up)


async def warm_up(address: Address) -> None:
    raise ConnectionLost(f"{address.url} does not answer")


async def test_a_sandbox_that_a_work_took_does_not_end_when_its_wait_would(
    program: Path, setups: list[HeldSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_sandboxes, "WARM_S", 1.0)
    works = Works(program)
    async with works.begun(), works.begun():
        assert [each.is_held for each in setups[:2]] == [False, False]
        await eventually(lambda: len(setups) > 2 and setups[2].closed)  # which waited from later on
        assert [each.closed for each in setups[:2]] == [0, 0]
    await works.warm.close()


async def test_works_on_one_version_share_no_sandbox_and_each_pays_its_own_calls(
    program: Path, setups: list[HeldSetup]
) -> None:
    works, first, second = Works(program), ModelSpending(), ModelSpending()
    async with works.begun(first, sandboxes=2):
        await eventually(lambda: len(setups) == 2 and len(setups[0].made) == 2 and setups[1].made)
        assert [each.is_held for each in setups] == [False, True]
        setups[0].call(0.5)
        setups[0].call(None)
    assert setups[0].closed == 1
    setups[1].made[0].die()
    async with works.begun(second, ref="trunk"):
        assert WARM in works.printed
        assert (setups[1].is_held, setups[1].up, len(setups[1].made)) == (False, 1, 2)
        setups[1].call(0.25)
        await eventually(lambda: len(setups) > 2 and setups[-1].made)
    assert (first, second) == (ModelSpending(0.5, 1), ModelSpending(0.25, 0))
    assert all(each.is_held and not each.closed for each in setups[2:])
    works.printed.clear()
    for given, has_waited in (({"code": "evolve/1"}, False), ({"seed": 3}, False), ({"code": "evolve/1"}, True)):
        async with works.begun(**given):
            await eventually(lambda: not any(each.is_held and not each.made for each in setups))
            assert (WARM in works.printed) is has_waited, given
    works.printed.clear()
    commit(program, {"new": "file"})
    async with works.begun(code="evolve/1"):
        assert WARM not in works.printed
    async with works.begun(sandbox_memory_mb=2000):
        assert works.reports[-1] == Warm(warm=1, memory_mb=2000), "those of other versions made room"
    await works.warm.close()
    assert [each.closed for each in setups] == [1] * len(setups)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt install bubblewrap")
def test_other_secrets_another_egress_or_a_new_commit_have_a_new_sandbox_started(
    service: Platform, program: Path
) -> None:
    service.sandbox = "bubblewrap"
    own = {"pass_env": ["OWN_KEY"]}

    def output(value: str, **settings: Any) -> tuple[Any, bool]:
        service.secrets["acme"] = Revealed({"OWN_KEY": value})
        found, warm = done(service, begun(service, program, **own, **settings))
        until_warm(service)
        return found[1], warm

    with working(service.parts(), service.place(), keep_warm=True):
        assert output("first key of all") == ("first", False)
        assert output("first key of all") == ("first", True)
        [before] = shared_processes_in(service.place().folder)
        assert output("second key of all") == ("second", False)
        until(lambda: before not in shared_processes_in(service.place().folder))  # with the old secret
        assert output("second key of all", allow_hosts=["example.com"]) == ("second", False)
        assert output("second key of all", allow_hosts=["example.com"]) == ("second", True)
        commit(program, {"new": "file"})
        assert output("second key of all") == ("second", False)


def test_what_sandboxes_spend_that_never_become_ready_is_counted(service: Platform, tmp_path: Path) -> None:
    service.secrets["acme"] = Revealed({"OPENAI_API_KEY": "sk-of-acme"})
    calls = list[None]()
    fails = commit_program(tmp_path / "fails", calls_at_start=str(tmp_path / "marker"), fails_at_start="")
    with model(lambda _: calls.append(None)) as base_url, working(service.parts(), service.place(), keep_warm=True):
        ended = service.ended(begun(service, fails, **priced(base_url)))
    assert (ended.status, len(calls) > 0) == ("failed", True)
    assert ended.cost_usd == pytest.approx(len(calls) * CALL_USD)


@pytest.mark.long
def test_a_step_is_cancelled_beside_another_one_of_its_tenant_that_continues(
    service: Platform, program: Path, dispatcher: None
) -> None:
    done(service, begun(service, program))
    hanging, other = begun(service, program, {"hangs": True}), begun(service, program, {"sleep": 4})
    until(lambda: service.get(hanging).status == service.get(other).status == "running")
    # That of the first step ends too if it had no sandbox ready when the step ended.
    [process] = until(lambda: len(found := shared_processes_in(service.place().folder)) == 1 and found)
    until(lambda: len(servers_of(process)) >= 2)
    service.records.replace(service.get(hanging).model_copy(update={"status": "cancelled", "wanted": "cancel"}))
    began = time.monotonic()
    until(lambda: not (service.place().folder / f"{hanging.id}-1").exists())
    assert time.monotonic() - began < 15, "it ends before the process would be killed"
    assert done(service, other)[0] == ["better", "no", False]
    assert (shared_processes_in(service.place().folder), service.get(other).attempts) == ([process], 1)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt install bubblewrap")
def test_at_modal_no_sandbox_waits(service: Platform, program: Path) -> None:
    service.sandbox = "modal"
    with loopback_modal_beside() as cloud, found_by_this_process(cloud):

        @contextlib.contextmanager
        def forward(port: int) -> Iterator[str]:
            cloud.reach(port)
            yield f"http://127.0.0.1:{port}"

        with working(service.parts(), replace(service.place(), forward=forward), keep_warm=True):
            for _ in range(2):
                assert done(service, begun(service, program)) == (["better", "no", False], False)
            until(lambda: not shared_processes_in(service.place().folder))
            assert cloud.running == []
        assert len(cloud.boxes) == 2


def until_warm(service: Platform) -> None:
    """Wait until a dispatcher that was asked from now on states that a sandbox waits."""

    def lease() -> LeaseRecord:
        found = service.records.get(LeaseRecord, TENANTS, ID)
        assert found is not None
        return found

    seen = lease().version
    until(lambda: lease().version > seen + 1 and lease().warm)


def servers_of(process: int) -> list[int]:
    """The servers of programs in the sandboxes of a process."""
    present = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return [
        pid
        for pid in present
        if b"rpc_server" in command_of(pid) and b"bootstrap" not in command_of(pid) and process in lineage_of(pid)
    ]
