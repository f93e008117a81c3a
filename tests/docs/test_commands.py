"""The commands in the quick start and the guides do what the pages show, with the scripted model for a paid one."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs import pages
from tests.gepa_client.exported_page import page_text
from tests.gepa_client.started_command import StartedCommand
from tests.support.forked_client import ForkServer

QUICKSTART = pages.ROOT / "examples" / "quickstart"
BIN = Path(sys.executable).parent
TOKEN = "shared-by-the-servers"

pytestmark = pytest.mark.timeout(300)  # many commands, one after the other


@contextmanager
def demo_model(fork_server: ForkServer) -> Iterator[dict[str, str]]:
    """Run the page's `evolverpc demo-model` on a free port; yield the variables that it prints."""
    [line] = pages.block("docs/quickstart.md", "evolverpc demo-model").commands()
    arguments = [*shlex.split(line)[1:], "--port", "0", "--json"]
    model = StartedCommand(fork_server, arguments, folder=pages.ROOT, environment=os.environ)
    try:
        yield json.loads(model.lines.readline()) | {"LITELLM_LOCAL_MODEL_COST_MAP": "1"}
    finally:
        model.terminate()
        model.communicate(30)


REPLACED = {
    "--token-file token": "",
    "--at 120": "--at 20",
    "calls 5000": "calls 40",
    "calls 2000": "calls 80",
    "calls 300": "calls 40",
}
"""What a page's command has -> what the test gives it."""

PROPOSER = """

def propose_new_texts(candidate, reflective_dataset, components):
    return {"prompt": "Name the team:\\n- desk: accounts"}
"""
"""Makes the program propose by itself, so that no reflection model is needed."""


@dataclass(frozen=True)
class Reader:
    """A user who follows the pages in a folder of their own, with servers of the quick start's program."""

    folder: Path
    urls: tuple[str, ...]
    environment: dict[str, str]
    fork_server: ForkServer

    def runs(self, line: str) -> None:
        """Run a page's command with the test's addresses and rows and a small budget; it must succeed."""
        for address, url in zip(("http://127.0.0.1:8000", "http://127.0.0.1:8001"), self.urls, strict=False):
            line = line.replace(address, url)
        for written, here in REPLACED.items():
            line = line.replace(written, here)
        tool, *arguments = shlex.split(line)
        assert tool == "evolverpc"
        environment = {**os.environ, **self.environment}
        status, stdout, stderr = self.fork_server.run(arguments, folder=self.folder, environment=environment)
        assert status == 0, f"{line}\n{(stdout + stderr).decode()}"


def copy_example(folder: Path, more: str = "") -> None:
    """Copy the quick start's example; add what the guides have: `rows.jsonl`, `program.py` with `more` at its end."""
    shutil.copytree(QUICKSTART, folder, dirs_exist_ok=True)
    shutil.copy(folder / "train.jsonl", folder / "rows.jsonl")
    (folder / "program.py").write_text((folder / "with_openai.py").read_text() + more)


@contextmanager
def servers(
    fork_server: ForkServer, folder: Path, variables: dict[str, str], *programs: str
) -> Iterator[tuple[str, ...]]:
    """Run the quick start's `evolverpc serve` command on free ports, one for each program."""
    [line] = [line for line in pages.block("docs/quickstart.md", "export").commands() if "evolverpc serve" in line]
    line = line.replace("--token-file token", "").replace("--port 8000", "--port 0")
    environment = variables | {"GEPA_TOKEN": TOKEN, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    with ExitStack() as running:
        started = []
        for program in programs:
            words = shlex.split(line.replace("with_openai.py", program))
            started.append(running.enter_context(fork_server.running_server(*words[2:], cwd=folder, env=environment)))
        yield tuple(endpoint.url for endpoint in started)


@pytest.mark.parametrize(
    ("package", "reflection"),
    [
        ("openai", "openai/gpt-5"),
        pytest.param("anthropic", "anthropic/claude-sonnet-4-5", marks=pytest.mark.long),
    ],
)
def test_the_quick_start_checks_the_program_and_improves_its_prompt(
    tmp_path: Path, fork_server: ForkServer, package: str, reflection: str
) -> None:
    copy_example(tmp_path)
    with demo_model(fork_server) as variables, servers(fork_server, tmp_path, variables, f"with_{package}.py") as urls:
        reader = Reader(tmp_path, urls, variables | {"GEPA_TOKEN": TOKEN}, fork_server)
        for command in ("check", "optimize"):
            [line] = pages.block("docs/quickstart.md", f"evolverpc {command}").commands()
            reader.runs(line.replace("openai/gpt-5", reflection))
    [run] = (tmp_path / "runs").glob("*/")
    result = json.loads((run / "result.json").read_text())
    prompts = [result["candidates"][0]["prompt"], json.loads((run / "best_candidate.json").read_text())["prompt"]]
    page = pages.text("docs/quickstart.md")
    assert [f"```text\n{prompt}\n```" in page for prompt in prompts] == [True, True], prompts
    scores = result["seed_score"], result["best_score"]
    assert "from {:.2f} to {:.2f}".format(*scores) in page
    report = page_text(run / "report.html")
    assert re.search(r"cost\n\$0\.\d+ evaluation, \$0\.\d+ reflection", report), report


@pytest.mark.long
def test_the_commands_about_fleets_long_runs_and_gains_work_one_after_the_other(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    copy_example(tmp_path, PROPOSER)
    with (
        demo_model(fork_server) as variables,
        servers(fork_server, tmp_path, variables, "program.py", "program.py") as urls,
    ):
        (tmp_path / "endpoints.txt").write_text("\n".join(urls))
        shutil.copy(tmp_path / "val.jsonl", tmp_path / "test.jsonl")
        reader = Reader(tmp_path, urls, {"GEPA_TOKEN": TOKEN}, fork_server)
        for line in pages.block("docs/guides/fleet.md", "evolverpc optimize").commands():
            reader.runs(line.replace("--reflection-lm openai/gpt-5", ""))
        (tmp_path / "mine.txt").write_text("Answer with the name of the product.")
        for first_line in ("evolverpc show last", "evolverpc runs", "evolverpc steer hint"):  # of the fork
            for line in pages.block("docs/guides/long-runs.md", first_line).commands():
                reader.runs(line)
        optimize, verify = pages.block("docs/guides/gains.md", "evolverpc optimize").commands()
        reader.runs(optimize)
        [certificate] = (tmp_path / "runs").glob("*/certificate.json")
        reader.runs(verify.replace("RUN", certificate.parent.name))
