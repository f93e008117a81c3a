"""Fleets of real gepa-servers, killed as a machine is that loses its power."""

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from gepa_client.transport.calls import Reply
from tests.gepa_client.fleet.conftest import Ledger, Watch, ask, results, until
from tests.gepa_client.scripted_server import TOKEN

CONCURRENCY = 4
"""Examples that a server has in hand at once."""

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


class Server:
    """A gepa-server in a process of its own, at a port it keeps when it is started again."""

    def __init__(self, folder: Path, name: str) -> None:
        self.count = folder / f"count-{name}"
        self.count.touch()
        (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
        self.command = [sys.executable, "-m", "rpc_server", "--json", "--root", str(folder), "--python", sys.executable]
        self.command += ["--program", str(folder / "program.py"), "--workers", "2"]
        self.command += ["--concurrency", str(CONCURRENCY)]
        self.port = "0"
        self.start()

    def start(self) -> None:
        environment = os.environ | {"GEPA_TOKEN": TOKEN, "COUNT_FILE": str(self.count)}
        command = [*self.command, "--env", f"COUNT_FILE={self.count}", "--port", self.port]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert self.process.stdout is not None
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        reader = threading.Thread(target=lambda out: lines.put(out.readline()), args=[self.process.stdout], daemon=True)
        reader.start()
        ready = orjson.loads(lines.get(timeout=30) or "{}")
        if "url" not in ready:
            self.end()
            raise AssertionError(f"gepa-server did not start: {ready}")
        self.url = ready["url"]
        self.port = self.url.removesuffix("/").removesuffix("/rpc").rpartition(":")[2]

    def end(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.communicate(timeout=20)

    @property
    def ran(self) -> list[str]:
        return self.count.read_text(encoding="utf-8").split()


@pytest.fixture
def servers(tmp_path: Path) -> Any:
    made = [Server(tmp_path, name) for name in ("one", "other")]
    yield made
    for server in made:
        server.end()


def evaluating(number: int, sleep_s: float) -> Any:
    async def send(client: Any, call_id: str | None) -> Reply[float]:
        example = {"id": str(number), "data": {"n": number, "sleep_s": sleep_s}}
        answer = await client.evaluate({"text": "x"}, [example], call_id=call_id)
        return Reply(answer["results"][0]["score"], answer["results"][0]["status"])

    return send


async def test_a_server_that_is_killed_costs_its_running_examples_and_no_more(
    servers: list[Server], opened: Any, watch: Watch
) -> None:
    doomed, other = servers
    async with opened(doomed, other) as fleet:
        ledgers = [Ledger(f"run/{number}") for number in range(60)]
        calls = [
            asyncio.create_task(ask(fleet, f"example {number}", evaluating(number, 0.05), ledger))
            for number, ledger in enumerate(ledgers)
        ]
        await until(lambda: len(doomed.ran) >= 8)
        doomed.end(signal.SIGKILL)
        await until(lambda: watch.of("resting"))
        begun = set(doomed.ran)
        doomed.start()
        scores = await results(*calls)
        assert scores == [number / 100 for number in range(60)]
        await until(lambda: watch.of("back"))
        twice = {number for number, runs in Counter(doomed.ran + other.ran).items() if runs > 1}
        # Not always recorded as lost: an example that is sent again as the server restarts may be its first call there.
        assert twice <= begun and len(twice) <= CONCURRENCY
        assert sum("lost" in ledger.outcomes for ledger in ledgers) <= CONCURRENCY
        assert all(ledger.outcomes[-1] == "ok" for ledger in ledgers)
