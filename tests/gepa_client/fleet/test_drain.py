"""Endpoints that are taken from the fleet file while they work."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gepa_client.fleet import Address, endpoint
from gepa_client.transport.calls import Reply
from tests.gepa_client.fleet.conftest import Ledger, ask, begin, results
from tests.gepa_client.scripted_server import TOKEN
from tests.support.waiting import eventually

A_MOMENT_S = 5.0
"""Far below any time-out of a call."""


PROGRAM = """
import os, time
from pathlib import Path

seed_candidate = {"text": "seed"}

def run(example, candidate):
    with Path(os.environ["COUNT_FILE"]).open("a", encoding="utf-8") as file:
        file.write(f"{example['n']}\\n")
    time.sleep(example["sleep_s"])
    return candidate["text"]

def score(example, output):
    return example["n"] / 100
"""


def evaluating(number: int, sleep_s: float) -> Any:
    async def send(client: Any, call_id: str | None) -> Reply[float]:
        example = {"id": str(number), "data": {"n": number, "sleep_s": sleep_s}}
        answer = await client.evaluate({"text": "x"}, [example], call_id=call_id)
        return Reply(answer["results"][0]["score"], answer["results"][0]["status"])

    return send


@contextmanager
def serving(folder: Path, name: str) -> Iterator[tuple[str, subprocess.Popen[bytes], Path]]:
    """A server on a socket that was made for it: its URL, its process, what it ran."""
    path, ran = folder / name, folder / f"ran-{name}"
    ran.touch()
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        command = [sys.executable, "-m", "rpc_server", "--root", str(folder), "--python", sys.executable]
        command += ["--program", str(folder / "program.py"), "--workers", "2", "--concurrency", "10"]
        process = subprocess.Popen(
            [*command, "--env", f"COUNT_FILE={ran}"],
            env=os.environ | {"GEPA_TOKEN": TOKEN, "GEPA_LISTEN": f"fd:{listener.fileno()}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    try:
        yield f"http+unix://{quote(str(path), safe='')}", process, ran
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")  # a socket's path is short


async def test_calls_of_a_sandbox_that_died_are_answered_elsewhere_at_once(folder, opened, watch, monkeypatch):
    listed = folder / "fleet"
    with serving(folder, "doomed") as (url, process, ran), serving(folder, "other") as (other, _, _):
        listed.write_text(f"{url}\n{other}\n", encoding="utf-8")
        async with opened(Address(url, listed=True), Address(other, listed=True)) as fleet:
            fleet.follow(listed)
            ledgers = [Ledger(f"run/{number}") for number in range(20)]
            calls = [
                asyncio.create_task(ask(fleet, f"example {number}", evaluating(number, 0.2), ledger))
                for number, ledger in enumerate(ledgers)
            ]
            await eventually(lambda: len(ran.read_text(encoding="utf-8").split()) >= 2)
            os.killpg(process.pid, signal.SIGKILL)
            died = time.monotonic()
            listed.write_text(f"{other}\n", encoding="utf-8")
            assert await results(*calls) == [number / 100 for number in range(20)]
            assert time.monotonic() - died < A_MOMENT_S
            lost = [ledger for ledger in ledgers if "lost" in ledger.outcomes]
            assert 2 <= len(lost) <= 10
            assert all(ledger.count == 2 and ledger.sent_to[-1][0] == other for ledger in lost)
            assert [endpoint.url for endpoint in fleet.endpoints] == [other]


async def test_an_endpoint_that_left_finishes_what_it_has(cluster, opened, watch, tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint, "DRAIN_POLL_S", 0.01)
    leader, leaver = cluster.start(), cluster.start(held=True)
    (tmp_path / "fleet").write_text(leaver.url, encoding="utf-8")
    async with opened(leader) as fleet:
        cluster.hold(leader)
        fleet.follow(tmp_path / "fleet")
        await eventually(lambda: len(watch.of("joined")) == 2)
        ledgers = [Ledger(f"{number}") for number in range(16)]
        calls = [begin(fleet, f"{number}", ledger) for number, ledger in enumerate(ledgers)]
        await eventually(lambda: leaver._running == 8)
        asked = len(leaver.called("discover"))
        (tmp_path / "fleet").write_text("", encoding="utf-8")
        await eventually(lambda: len(leaver.called("discover")) > asked + 2 * endpoint.DRAIN_SILENT_POLLS)
        cluster.let_go(leader)
        cluster.let_go(leaver)
        await results(*calls)
        assert all(ledger.outcomes == ["ok"] for ledger in ledgers)
        assert watch.kinds("left") == ["left"]
