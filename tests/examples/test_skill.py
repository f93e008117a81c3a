"""A coding agent that has the skill improves the prompt of a repository by the commands that the skill names, in order.

The agent is the real program; what its model answers is scripted.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import _bundled

from evolverpc import load_candidate
from gepa_client.cli.commands.demo_model import answer
from gepa_client.cli.model_server import ModelServer
from tests.docs import pages
from tests.support.http_servers import in_thread
from tests.support.scripted_anthropic import Asked, Script, ScriptedModel, Turn, use

SKILL = "skills/evolverpc/SKILL.md"
AGENT = Path(_bundled.__path__[0]) / "claude"
APP = '''"""Names the team that answers a customer's message."""

from openai import OpenAI


def answer(message, prompt):
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": message}]
    answered = OpenAI().chat.completions.create(model="gpt-5-mini", messages=messages)
    return answered.choices[0].message.content.strip().lower()
'''

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def repository(folder: Path) -> Path:
    """A program that the skill does not know, with its prompt in a file and the rows of the quick start."""
    folder.mkdir()
    (folder / "app.py").write_text(APP)
    (folder / "prompt.txt").write_text("Which team should answer this message? Answer with one word.")
    examples = pages.ROOT / "examples" / "quickstart"
    (folder / "rows.jsonl").write_text("".join((examples / f"{each}.jsonl").read_text() for each in ("train", "val")))
    shutil.copytree((pages.ROOT / SKILL).parent, folder / ".claude" / "skills" / "evolverpc")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


class Agent:
    """Does what the skill states; each turn follows from what the one before it gave."""

    def __init__(self, port: int) -> None:
        self.results: list[str] = []
        address = f"http://127.0.0.1:{port}"
        blocks = [block.text.replace("http://127.0.0.1:8000", address) for block in pages.blocks(SKILL)]
        [self.program, serve, self.check, self.optimize, _] = blocks
        ready = "until grep -q 127.0.0.1 serve.log; do sleep 0.1; done"
        self.serve = f"{serve.strip().replace('8000', str(port))} > serve.log 2>&1 & {ready}"

    def turn(self, asked: Asked) -> Turn:
        self.results = asked.tool_results
        turns: list[Turn] = [
            [use("Skill", skill="evolverpc")],
            [use("Write", file_path="{folder}/optimized.py", content=self.program)],
            *([use("Bash", command=each)] for each in (self.serve, self.check, self.optimize)),
            [use("Bash", command="evolverpc show last")],
            [use("Bash", command="cp runs/*/best_candidate.json . && pkill -f 'optimized[.]py --port' && echo ended")],
            ["The prompt is better on rows that the search has not seen."],
        ]
        return turns[asked.turn]


async def test_an_agent_with_the_skill_improves_a_repository_it_has_not_seen(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    folder, agent = repository(tmp_path / "repository"), Agent(unused_tcp_port)
    model = ScriptedModel([Script("Improve the prompt", agent.turn)])
    with in_thread(ModelServer(answer)) as answering:
        async with model:
            environment = {
                **os.environ,
                **answering.variables,
                **model.environment(),
                "HOME": str(tmp_path),
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            }
            ended = await run_agent(folder, environment)
    assert ended["result"].startswith("The prompt is better"), ended
    skill, _, _, checked, optimized, shown, stopped = agent.results
    assert "evolverpc" in skill.lower()
    assert any("# Improve a program's prompts" in json.dumps(asked.body) for asked in model.asked)
    assert "ok proposals" in checked, checked
    assert "use it" in optimized, optimized
    assert "completed" in shown and "gain" in shown, shown
    assert "ended" in stopped
    assert "desk" in load_candidate(folder / "best_candidate.json")["prompt"]


async def run_agent(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Ask the agent program once, in this folder; return its result."""
    tools = ["Bash", "Read", "Skill", "Write"]
    command = [str(AGENT), "--print", "Improve the prompt of app.py by its rows.", "--output-format", "json"]
    process = await asyncio.create_subprocess_exec(
        *command, "--allowedTools", *tools, cwd=folder, env=environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stdout, stderr = await asyncio.wait_for(process.communicate(), 250)
    assert process.returncode == 0, (stdout + stderr).decode()
    result: dict[str, Any] = json.loads(stdout)
    return result
