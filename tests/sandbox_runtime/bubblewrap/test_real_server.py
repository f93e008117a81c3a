"""`evolverpc serve` itself in a sandbox, with its jail."""

import gc
import io
import shutil
import tarfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import aiohttp
import pytest

from sandbox_runtime import Command, Recipe, SandboxSpec
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.backends.records import SandboxRecords
from sandbox_runtime.runtime import Runtime
from tests.sandbox_runtime.bubblewrap.containers import left_of, shell_output

TICKETS = Path(__file__).parents[3] / "examples" / "tickets"


def packed(folder: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(folder, folder.name)
    return content.getvalue()


async def test_a_server_serves_a_program(
    find_control_groups: None, records: SandboxRecords, sockets: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime(BubblewrapBackend(records=records)) as runtime:
        prepared = await runtime.prepare(Recipe(), on_progress=lambda _: None)
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or pytest.skip("no Python in /usr")
        spec = SandboxSpec(
            main=Command((*prepared.server, "--python", python), cwd="tickets/python"),
            prepared=prepared,
            setup=(Command(("tar", "xf", "-"), stdin=packed(TICKETS)),),
            ready_s=60,
        )
        sandbox = await runtime.start(spec)
        endpoint = await sandbox.endpoint()
        call = {"jsonrpc": "2.0", "id": 1, "method": "discover", "params": {}}
        connector = aiohttp.UnixConnector(unquote(urlsplit(endpoint.url).netloc))
        async with aiohttp.ClientSession(connector=connector) as session:
            for token, status in ((endpoint.token, 200), ("wrong", 401)):
                headers = {"Authorization": f"Bearer {token}"}
                async with session.post("http://localhost/rpc", json=call, headers=headers) as answer:
                    assert answer.status == status
                    assert status != 200 or "tickets" in await answer.text()
        seen = await shell_output(sandbox, "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; true")
        assert endpoint.token not in seen
    assert left_of(records, sockets, sandbox.id) == []
    del sandbox
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []  # every failure was looked at
