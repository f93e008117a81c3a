"""A sandboxed server outlives large answers, closed connections and programs that end their parent.

`MEMORY_LONG=1` runs the long form (10,000 answers, 200 connections, 50 rows); each test prints a line of JSON.
"""

import io
import json
import os
import shutil
import tarfile
from collections.abc import AsyncIterator

import pytest

from gepa_client import RpcClient
from sandbox_runtime import Command, Recipe, ResourceLimits, Sandbox, SandboxSpec
from sandbox_runtime.backends.bubblewrap.runtime import BubblewrapRuntime
from sandbox_runtime.backends.records import SandboxRecords
from tests.sandbox_runtime.bubblewrap.containers import groups_of

ANSWERS, CONNECTIONS, ROWS = (10_000, 200, 50) if os.environ.get("MEMORY_LONG") == "1" else (140, 5, 2)
SEED = {"prompt": "p"}
PROGRAM = b"""
import os, signal, time
seed_candidate = {"prompt": "p"}
def run(example, candidate):
    if example.get("do") == "end the parent":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(30)
    if example.get("do") == "take all memory":
        kept = []
        while True:
            kept.append(b"x" * 2**24)
    return "x" * example["bytes"]
def score(example, output):
    return 1.0
"""


@pytest.fixture
async def sandbox(find_control_groups: None, records: SandboxRecords) -> AsyncIterator[Sandbox]:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        entry = tarfile.TarInfo("program.py")
        entry.size = len(PROGRAM)
        archive.addfile(entry, io.BytesIO(PROGRAM))
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or pytest.skip("no Python in /usr")
    async with BubblewrapRuntime(records=records) as runtime:
        prepared = await runtime.prepare(Recipe(), on_progress=lambda _: None)
        spec = SandboxSpec(
            main=Command((*prepared.server, "--python", python, "--program", "program.py", "--workers", "2")),
            prepared=prepared,
            setup=(Command(("tar", "xf", "-"), stdin=content.getvalue()),),
            limits=ResourceLimits(memory_mb=1024),
            ready_s=60,
        )
        yield await runtime.start(spec)


def used_mb(sandbox: Sandbox) -> int | None:
    """The memory that the sandbox is charged for; None where no control group counts it."""
    for group in groups_of(sandbox.id):
        for name in ("memory.usage_in_bytes", "memory.current"):
            if (group / name).exists():
                return int((group / name).read_text()) // 2**20
    return None


@pytest.mark.timeout(3600)
async def test_rows_that_end_their_parent_or_take_all_memory_end_no_server(sandbox: Sandbox) -> None:
    deeds = ["end the parent", "take all memory"] * (ROWS // 2)
    endpoint = await sandbox.endpoint()
    async with RpcClient(endpoint.url, token=endpoint.token) as client:
        await client.discover()
        for number, deed in enumerate(deeds):
            batch = [{"id": "bad", "data": {"do": deed}}, {"id": "good", "data": {"bytes": 5}}]
            bad, good = (await client.evaluate(SEED, batch, call_id=f"c{number}", timeout_s=120))["results"]
            assert (bad["status"], good["status"]) == ("program_error", "ok"), (deed, bad, good)
    print(json.dumps({"deadly_rows": len(deeds), "sandbox_mb": used_mb(sandbox)}))
