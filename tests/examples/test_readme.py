"""The programs on the front page work as they stand there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import gepa
import pytest

from gepa_client import RemoteAdapter
from sandbox_runtime import ServerEndpoint, running_server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "clients" / "typescript"
TSC = PACKAGE / "node_modules" / ".bin" / "tsc"
ROWS = [{"message": "I was charged twice", "team": "billing"}, {"message": "It crashes", "team": "bug"}]


def block(first_line: str) -> str:
    return next(code for code in re.findall(r"```\w+\n(.*?)```", README, re.DOTALL) if code.startswith(first_line))


def optimised(endpoint: ServerEndpoint, tmp_path: Path) -> list[float]:
    """Run the README's own snippet against a program; the reflection model always writes `billing`."""
    (tmp_path / "token").write_text(endpoint.token)
    snippet = (
        block("import gepa").replace("http://127.0.0.1:8000", endpoint.url).replace('"FILE"', repr(f"{tmp_path}/token"))
    )
    snippet = snippet.replace('"openai/gpt-5"', "model").replace("max_metric_calls=500", "max_metric_calls=8")
    names: dict[str, object] = {"rows": ROWS, "model": lambda _prompt: "```\nbilling\n```"}
    exec(snippet, names)  # noqa: S102  it is ours, and what a reader would paste
    result = names["result"]
    assert isinstance(result, gepa.GEPAResult)
    return result.val_aggregate_scores


def test_the_python_program_is_optimised(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(block("# program.py"))
    (tmp_path / "my_system.py").write_text("def ask(prompt, message):\n    return prompt\n")
    server = [str(Path(sys.executable).with_name("gepa-server")), "--program", "program.py"]
    with running_server(server, cwd=tmp_path) as endpoint:
        assert optimised(endpoint, tmp_path) == [0.0, 0.5]
        with RemoteAdapter(endpoint.url, token=endpoint.token) as adapter:
            traced = adapter.evaluate(ROWS[:1], adapter.seed_candidate, capture_traces=True)
            assert traced.trajectories is not None
            assert "expected billing" in traced.trajectories[0].result["feedback"]


@pytest.mark.skipif(shutil.which("node") is None or not TSC.exists(), reason="the TypeScript package is not set up")
def test_the_typescript_program_compiles_strictly_and_is_optimised(tmp_path: Path) -> None:
    (tmp_path / "program.ts").write_text(block("// program.ts"))
    (tmp_path / "my-system.ts").write_text(
        "export const ask = async (prompt: string, message: string, options: { signal: AbortSignal }) => {\n"
        "  options.signal.throwIfAborted();\n  return message ? prompt : '';\n};\n"
    )
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "evolverpc").symlink_to(PACKAGE)
    compiler = [str(TSC), "--strict", "--module", "nodenext", "--target", "es2022", "--types", "", "program.ts"]
    compiled = subprocess.run(compiler, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert compiled.returncode == 0, compiled.stdout
    with running_server(["node", "program.js"], cwd=tmp_path) as endpoint:
        assert optimised(endpoint, tmp_path) == [0.0, 0.5]
