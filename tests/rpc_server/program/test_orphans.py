"""A server that is killed leaves no process behind, not even one busy in user code."""

import asyncio
import json
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.processes import processes_with
from tests.support.waiting import eventually

HERE = Path(__file__).parent

PYTHON = {"python": sys.executable}

SERVER = """
import asyncio, json, sys
from pathlib import Path
from protocol import Example
from rpc_server.program.open_program import open_program
from rpc_server.settings import Settings

async def main():
    given = json.loads(sys.argv[1])
    program = await open_program(Settings(root=Path(given["root"]), env=given["env"], **given["settings"]))
    batch = [Example(id=str(number), data=row) for number, row in enumerate(given["rows"])]
    seed = program.info.seed_candidate
    await program.evaluate(seed, batch, capture_traces=False, on_result=lambda position, result: None)

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a busy process ends only with its example")
@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        (
            {**PYTHON, "program": "behaves.py", "workers": 2, "concurrency": 2},
            [{"do": "spin_in_c"}, {"do": "sleep", "seconds": 600}],
        ),
        ({**PYTHON, "program": "waits.py"}, [{"do": "hold"}]),
        ({**PYTHON, "program": "starts_threads.py"}, [{"seconds": 600}]),
        ({"command": [sys.executable, "stdio.py"], "workers": 1}, [{"do": "busy"}]),
    ],
)
async def test_a_server_killed_with_sigkill_takes_its_programs_along(settings, rows, tmp_path):
    mark = uuid.uuid4().hex
    begun = [tmp_path / str(number) for number in range(len(rows))]
    rows = [{**row, "begun": str(path)} for row, path in zip(rows, begun, strict=True)]
    given = {"root": str(HERE / "data"), "env": {"PROGRAM_TEST_MARK": mark}, "settings": settings, "rows": rows}
    command = [sys.executable, "-c", SERVER, json.dumps(given)]
    root = HERE.parents[2]
    server = await asyncio.create_subprocess_exec(*command, cwd=root)
    try:
        await eventually(lambda: all(path.exists() for path in begun))
        assert processes_with(f"PROGRAM_TEST_MARK={mark}")
    finally:
        server.kill()
        await server.wait()
    await eventually(lambda: not processes_with(f"PROGRAM_TEST_MARK={mark}"), 5.0)
