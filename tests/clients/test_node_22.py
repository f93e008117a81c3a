"""The TypeScript package works with Node 22, though `make test` may use another one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gepa_client import RemoteAdapter
from sandbox_runtime import running_server
from tests.support.installed import installed
from tests.support.pnpm_workspace import needs_npm_registry

VERSION = "22.23.3"
PACKAGE = Path(__file__).parents[2] / "clients" / "typescript"
PLATFORM = "`node-${process.platform}-${process.arch}`"
"""What npm's package `node` installs by a script, written in JavaScript."""

PROGRAM = """\
import type { Program } from "evolverpc";

export const program: Program<{ text: string }, string> = {
  name: "version",
  seedCandidate: { prompt: "" },
  run: (): string => process.version,
  score: () => 1,
};
"""
SERVE = 'import { serve } from "evolverpc";\nimport { program } from "./program.ts";\nawait serve(program);\n'

pytestmark = [
    pytest.mark.long,
    needs_npm_registry,
    pytest.mark.skipif(
        shutil.which("node") is None or not (PACKAGE / "dist" / "index.js").is_file(),
        reason="no node, or no built package",
    ),
]


def install(folder: Path) -> None:
    """Node of this version as a package of npm."""
    named = subprocess.run(["node", "--print", PLATFORM], check=True, timeout=60, capture_output=True, text=True)
    wanted = f"node@npm:{named.stdout.strip()}@{VERSION}"
    flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefer-offline")
    subprocess.run(["npm", "install", "--prefix", folder, *flags, wanted], check=True, timeout=500)


@pytest.fixture(autouse=True)
def node_22(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 22 is the first on PATH."""
    programs = installed("node-22", VERSION, install) / "node_modules" / "node" / "bin"
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.timeout(900)
def test_the_tests_in_typescript_pass() -> None:
    command = ["node", "node_modules/vitest/vitest.mjs", "run"]
    done = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "command",
    [[str(Path(sys.executable).with_name("evolverpc")), "serve", "program.ts"], ["node", "serve.ts"]],
    ids=["evolverpc", "node"],
)
def test_a_file_in_typescript_is_served(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.ts").write_text(PROGRAM)
    (tmp_path / "serve.ts").write_text(SERVE)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "evolverpc").symlink_to(PACKAGE)
    (tmp_path / "node_modules" / "tsx").symlink_to(PACKAGE / "node_modules" / "tsx")
    with (
        running_server(command, cwd=tmp_path) as endpoint,
        RemoteAdapter(endpoint.url, token=endpoint.token) as adapter,
    ):
        assert adapter.evaluate([{"text": ""}], {"prompt": ""}).outputs == [f"v{VERSION}"]
