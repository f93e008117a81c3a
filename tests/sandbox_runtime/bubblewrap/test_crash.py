import json
import subprocess
import sys
from pathlib import Path

from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.backends.records import SandboxRecords
from tests.sandbox_runtime.bubblewrap.containers import groups_of, left_of
from tests.support.waiting import eventually

OWNER = """
import asyncio, json, sys
from pathlib import Path
from sandbox_runtime import Runtime
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.backends.records import SandboxRecords
from tests.sandbox_runtime.bubblewrap.containers import ANSWERING, python, shell, spec_of

async def main():
    records = SandboxRecords("bubblewrap", state=Path(sys.argv[1]), sockets=Path(sys.argv[2]))
    async with BubblewrapBackend(records=records) as runtime:
        hold = 'import subprocess\\nsubprocess.Popen(["sleep", "600"], start_new_session=True)\\n'
        spec = await spec_of(runtime, main=python(hold + ANSWERING))
        sandboxes = await asyncio.gather(*(runtime.start(spec) for _ in range(3)))
        running = asyncio.ensure_future(sandboxes[0].exec(shell("sleep 600")))
        starting = asyncio.ensure_future(runtime.start(await spec_of(runtime, setup=(shell("sleep 600"),))))
        await asyncio.sleep(0.05)
        print(json.dumps({"ids": [sandbox.id for sandbox in sandboxes]}), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_when_the_owner_is_killed_its_sandboxes_end_and_a_sweep_removes_the_rest(
    find_control_groups: None, records: SandboxRecords, sockets: Path, tmp_path: Path
) -> None:
    with subprocess.Popen(  # noqa: ASYNC220  nothing else runs yet
        [sys.executable, "-c", OWNER, str(tmp_path / "state"), str(sockets)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        started = json.loads(owner.stdout.readline())
        runtime = BubblewrapBackend(records=records)
        assert await runtime.sweep() == []
        assert {found.orphan for found in await runtime.found()} == {False}
        owner.kill()
    await eventually(lambda: not any("process" in one for one in left_of(records, sockets, *started["ids"])))
    assert {found.orphan for found in await runtime.found()} == {True}
    assert set(started["ids"]) <= set(await runtime.sweep())
    assert left_of(records, sockets, *started["ids"]) == []
    assert [groups_of(id_) for id_ in started["ids"]] == [[], [], []]
