"""JavaScript programs that node cannot start, behind `evolverpc serve --command`."""

import os
from pathlib import Path

import pytest

from tests.rpc_server.program.conftest import needs_node
from tests.support.forked_client import ForkServer

pytestmark = needs_node

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
