"""A sandboxed server outlives programs that end their parent or take all memory; `MEMORY_LONG=1`: 50 of them."""

import io
import os
import shutil
import tarfile
from collections.abc import AsyncIterator

import pytest

from gepa_client import RpcClient
from sandbox_runtime import Command, Recipe, ResourceLimits, Sandbox, SandboxSpec
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.backends.records import SandboxRecords
from sandbox_runtime.runtime import Runtime

ROWS = 50 if os.environ.get("MEMORY_LONG") == "1" else 2
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
    async with Runtime(BubblewrapBackend(records=records)) as runtime:
        prepared = await runtime.prepare(Recipe(), on_progress=lambda _: None)
        spec = SandboxSpec(
            main=Command((*prepared.server, "--python", python, "--program", "program.py", "--workers", "2")),
            prepared=prepared,
            setup=(Command(("tar", "xf", "-"), stdin=content.getvalue()),),
            limits=ResourceLimits(memory_mb=1024),
            ready_s=60,
        )
        yield await runtime.start(spec)


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
