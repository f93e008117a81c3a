"""JavaScript programs that misbehave, behind `evolverpc serve --command`, over a real socket."""

import os
import shutil
from pathlib import Path

import pytest

from gepa_client import RpcClient
from tests.support.forked_client import ForkServer

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "clients" / "typescript" / "dist" / "index.js"
PROGRAM = Path(__file__).parent / "data" / "misbehaves.mjs"

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not PACKAGE.is_file(), reason="the TypeScript package has not been built"),
]


@pytest.fixture(scope="module")
def endpoint(fork_server: ForkServer):
    command = ("--command", "node", str(PROGRAM), str(PACKAGE))
    with fork_server.running_server("--workers", "2", "--example-timeout-s", "1", *command) as running:
        yield running


async def test_neighbours_of_a_death_and_of_a_busy_loop_get_their_results(endpoint):
    ways = ["exit", "good", "hang_busy", "good", "segfault", "good"]
    batch = [{"id": str(at), "data": {"way": way, "output": at}} for at, way in enumerate(ways)]
    async with RpcClient(endpoint.url, token=endpoint.token) as client:
        results = (await client.evaluate({"prompt": ""}, batch))["results"]
    assert [result["status"] for result in results] == ["program_error", "ok", "timeout", "ok", "program_error", "ok"]
    assert [result["output"] for result in results[1::2]] == [1, 3, 5]
    assert [result["error"]["type"] for result in results[::2]] == ["process_died", "timeout", "process_died"]


FAULTY = "console.error('first');\nconst broken = (a) => { return a ; , };\n"
FILES = {
    "package.json": '{"type": "module"}',
    "built/package.json": '{"scripts": {"build": "tsc"}}',
    "faulty.mjs": FAULTY,
    "package.mjs": "import 'not-installed';\n",
    "throws.mjs": "console.error('first');\nconst f = () => { throw new Error('no key'); };\nf();\n",
}


@pytest.mark.parametrize(
    ("started", "message", "rest"),
    [
        ("gone.mjs", "{folder}/gone.mjs: no such file; correct the command", []),
        (
            "faulty.mjs",
            "{folder}/faulty.mjs, line 2: SyntaxError: Unexpected token ','; correct it and start again",
            ["const broken = (a) => { return a ; , };", "                                   ^"],
        ),
        (
            "built/dist/serve.mjs",
            "there is no folder {folder}/built/dist; {folder}/built has a script `build`: set build_command",
            [],
        ),
        ("package.mjs", "imports not-installed, which is not installed: run npm install in {folder}", []),
        (
            "throws.mjs",
            "{folder}/throws.mjs, line 2: Error: no key",
            [
                "first",
                "const f = () => { throw new Error('no key'); };",
                "                        ^",
                "    at f (file://{folder}/throws.mjs:2:25)",
                "    at file://{folder}/throws.mjs:3:1",
            ],
        ),
    ],
)
def test_a_program_that_node_cannot_start_is_reported_in_one_line_without_nodes_own_frames(
    tmp_path: Path, fork_server: ForkServer, started: str, message: str, rest: list[str]
) -> None:
    (tmp_path / "built").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    arguments = ["--command", f"node {started}"]
    status, _, stderr = fork_server.run_server(arguments, folder=tmp_path, environment=os.environ)
    assert status == 2
    first, *more = stderr.decode().rstrip("\n").splitlines()
    assert first.startswith("evolverpc serve: the program cannot start (start): ")
    assert message.format(folder=tmp_path) in first
    wanted = [f"    {line.format(folder=tmp_path)}" if "folder}" in line else f"    {line}" for line in rest]
    assert more == (["  its output:", *wanted] if wanted else [])
